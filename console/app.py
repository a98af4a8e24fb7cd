"""The application: one factory for the command line and the tests. It holds no engine state."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from textual.events import Key
from textual.message import Message
from textual.widgets import Input

from console import themes
from console.actions import Scope, method_of
from console.bridge import Bridge, EngineLike, Load
from console.control.conversation import Conversation
from console.control.live import LiveControls
from console.control.pending_changes import PendingChanges
from console.control.surface import Watched
from console.history import History
from console.locale import lang
from console.locale.lang import _, said
from console.messages import AnswerArrived, EngineDown, EngineFailed, EngineUp, UiCall
from console.panels.panel import WIDE
from console.recording.controls import RecordingControls
from console.renderables.screen_state import EnginePhase, ScreenState
from console.screens.base_screen import SMALLEST, BaseScreen
from console.screens.dialogs import ConfirmScreen, ask_first
from console.screens.help import HelpScreen
from console.screens.overview import Overview
from console.screens.palette import ActionCommands, Palette, Themes
from console.screens.requests import RequestsScreen
from engine.snapshot import Snapshot
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.objectives.budget import Budget
from playbooks.optlog import OptLog

if TYPE_CHECKING:
    from console.control.filled_checklist import FilledChecklist
    from console.control.forecasts import Forecasts
    from console.control.run_manager import RunManager
    from console.control.run_state import PlaybookRun

REPORT_PATIENCE_S = 15.0
"""So long a cancelled playbook may take to end before the console leaves."""
ANSWER_INTERVAL_S = 0.1
"""A fast answer is drawn at most so often."""


def build_app(
    engine: EngineLike,
    *,
    readonly: bool = False,
    refresh_hz: float = 2.0,
    load: Load | None = None,
    clock: Callable[[], float] = time.time,
    log: OptLog | None = None,
    theme: str | None = None,
    language: str | None = None,
    keeper: Watchkeeper | None = None,
) -> Console:
    """The console on `engine`, which it starts and stops itself.

    `load` is started once the engine is up. `clock` is Unix seconds. `log` is the optimization
    log, by default the user's own; `theme` one of console/themes.py, by default what suits the
    terminal; `language` one of console/locale, by default what the environment asks for. `keeper`
    keeps budgets and alerts; whoever made it starts and stops it. After run(), `exit_error` says
    why the engine could not start, None if it did.
    """
    lang.use(language or lang.wanted(os.environ))
    return Console(engine, readonly, refresh_hz, load, clock, log, theme, keeper)


class Console(LiveControls, RecordingControls):
    TITLE = "EveWatch"
    CSS_PATH = "theme.tcss"
    COMMANDS: ClassVar = {ActionCommands}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    # Screens get these classes by their size; theme.tcss lays out by them.
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - Textual declares it so
        (0, "-thin"),
        (SMALLEST[0], "-narrow"),
        (WIDE[0], "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"),
        (SMALLEST[1], "-low"),
        (WIDE[1], "-tall"),
    ]

    def __init__(
        self,
        engine: EngineLike,
        readonly: bool,
        refresh_hz: float,
        load: Load | None,
        clock: Callable[[], float],
        log: OptLog | None = None,
        theme: str | None = None,
        keeper: Watchkeeper | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.animation_level = "none"
        self.readonly = readonly
        self.exit_error: Exception | None = None
        self.clock = clock
        self.log_book = log or OptLog()
        self.keeper = keeper
        self.history = History()
        self.changes = PendingChanges()
        self.talk = Conversation()
        self.paused = False
        self.bridge = Bridge(engine, self._post, load, clock)
        self.overview = Overview(readonly, self.talk)
        self.shown = ScreenState(readonly=readonly)
        """What the display stands at: the latest, or that of when it was paused."""
        self._runs: RunManager | None = None
        self._wanted_theme = theme or themes.suits(os.environ)
        self._refresh_s = 1.0 / refresh_hz
        self._ticks = 0
        self._answer_due = False
        self._leaving = False
        """A playbook's report is waited for; asked to quit again, it is not."""

    def get_default_screen(self) -> Overview:
        return self.overview

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.INKS

    def on_mount(self) -> None:
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = self._wanted_theme
        self.bridge.start()
        self.set_interval(self._refresh_s, self.tick)
        self.call_after_refresh(self.tick)
        if hasattr(self.bridge.engine, "fleet"):
            self.call_after_refresh(self.action_show_fleet)

    def on_key(self, event: Key) -> None:
        """Letters that were typed before a line of input had the keyboard are that line's, which
        itself lets none through to here."""
        line = self.focused
        if isinstance(line, Input) and event.is_printable and event.character is not None:
            event.prevent_default()
            line.call_later(line.insert_text_at_cursor, event.character)  # once it has the keyboard

    # numbers

    def tick(self) -> None:
        """Read the latest Snapshot; draw it, every second time only while requests wait."""
        self.bridge.watch_pages(self.overview.shows("kv"))
        snapshot = self.bridge.poll()
        self.take_passed()
        self.history.push(snapshot)
        self._ticks += 1
        saturated = (snapshot.queue.waiting or 0) > 0 and self.player is None
        if saturated and self._ticks % 2:
            return
        self.draw(snapshot)

    def draw(self, snapshot: Snapshot) -> None:
        """On the screen that is seen; the others draw when they are come back to."""
        screen = self.top_screen
        if not screen.is_mounted:
            return
        state = self.screen_state(snapshot)
        if self.paused:
            screen.show_header(state)
        else:
            self.shown = state
            screen.show(state)

    @property
    def top_screen(self) -> BaseScreen:
        """The topmost screen that is no dialog."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, BaseScreen):
                return screen
        return self.overview

    def screen_state(self, snapshot: Snapshot) -> ScreenState:
        engine = self.bridge.engine
        return ScreenState(
            snapshot=snapshot,
            history=self.history,
            phase=self.bridge.phase,
            phase_s=self.bridge.phase_s,
            loading=engine.loading or f"the model {engine.config.model}",
            readonly=self.readonly,
            paused=self.paused,
            running=self._runs.headline if self._runs is not None else "",
            budgets=self._budgets(),
            alerts=tuple(self.keeper.told) if self.keeper is not None else (),
            recording=self.recorded,
            playback=None if self.player is None else self.player.playback,
        )

    def _budgets(self) -> tuple[Budget, ...]:
        """Of what is shown, where objectives are set; of a recording those it was made under."""
        if self.player is not None:
            kept = self.player.budgets
            return () if kept is None else kept.at(self.player.now())
        book = self.keeper.book if self.keeper is not None else None
        shown = getattr(self.bridge.engine, "members", None)
        return book.budgets(shown) if book is not None else ()

    # messages

    def notify(self, message: str, **options: Any) -> None:
        super().notify(_(message), **{"markup": False, **options})

    def call_soon(self, do: Callable[[], object]) -> None:
        self._post(UiCall(do))

    def on_ui_call(self, message: UiCall) -> None:
        message.do()

    def _post(self, message: Message) -> None:
        """From any thread. An engine thread must not fail because the console has ended."""
        try:
            self.post_message(message)
        except RuntimeError:
            if self.is_running:
                raise

    def on_engine_up(self, message: EngineUp) -> None:
        self.bridge.went_up()
        self.draw(self.bridge.poll())
        self.top_screen.show_footer()

    def on_engine_failed(self, message: EngineFailed) -> None:
        self.exit_error = message.error
        self.exit(return_code=1)

    def on_engine_down(self, message: EngineDown) -> None:
        self.exit()

    def on_answer_arrived(self, message: AnswerArrived) -> None:
        if not self._answer_due:
            self._answer_due = True
            self.set_timer(ANSWER_INTERVAL_S, self._take_answer)

    def _take_answer(self) -> None:
        self._answer_due = False
        if self.talk.take():
            self.overview.show_answer(self.talk)

    def ask(self, text: str) -> None:
        """Called by the prompt line."""
        if self.bridge.phase is not EnginePhase.UP:
            self.notify("the engine is not up yet", severity="warning")
        elif self.talk.request_id is not None:
            self.notify("an answer is running; ctrl+g cancels it", severity="warning")
        else:
            self.talk.ask(text, self.bridge.ask)
            self.overview.show_answer(self.talk)

    # actions

    @property
    def here(self) -> Scope:
        return self.top_screen.scope

    def scope(self, where: str) -> Scope:
        return Scope(where, self.refusal, lambda attribute: hasattr(self.bridge.engine, attribute))

    def refusal(self, control: str) -> str:
        """Why nobody may use that control of the engine, "" if one may."""
        return "read-only" if self.readonly else self.bridge.refusal(control)

    async def run_action(self, action: Any, *args: Any, **options: Any) -> bool:
        """Keys, clicks and palette all come through here; what may not be done says why."""
        if isinstance(action, str):
            scope = self.here
            found = scope.find(method_of(action))
            if found is not None and (why := scope.forbidden(found)):
                text = said("{title}: {why}", title=found.title, why=why)
                self.notify(text, severity="warning", timeout=3)
                return True
        return await super().run_action(action, *args, **options)

    def go(self, to: BaseScreen) -> None:
        """To a screen beside the overview: whatever else was open is left."""
        if type(self.top_screen) is type(to):
            return
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.push_screen(to)

    def action_show_requests(self) -> None:
        self.go(RequestsScreen())

    def action_find_request(self) -> None:
        screen = RequestsScreen()
        self.go(screen)
        screen.call_after_refresh(screen.action_filter_rows)

    @cached_property
    def checklists(self) -> list[FilledChecklist]:
        from console.control.filled_checklist import all_lists

        return all_lists()

    def action_show_checklists(self) -> None:
        from console.screens.checklists import ChecklistsScreen

        self.go(ChecklistsScreen())

    @property
    def runs(self) -> RunManager:
        if self._runs is None:
            from console.control.run_manager import RunManager

            self._runs = RunManager(self)
        return self._runs

    def action_show_playbooks(self) -> None:
        from console.screens.playbooks import PlaybooksScreen

        self.go(PlaybooksScreen())

    def action_show_run(self) -> None:
        """The playbook that runs, from its name in the header."""
        from console.screens.run import RunScreen

        if self.runs.last is not None and not isinstance(self.screen, RunScreen):
            self.push_screen(RunScreen(self.runs.last))

    def action_show_log(self) -> None:
        from console.screens.log import LogScreen

        self.go(LogScreen(self.log_book))

    @cached_property
    def forecasts(self) -> Forecasts:
        from console.control.forecasts import Forecasts

        return Forecasts(self)

    def action_show_forecast(self) -> None:
        """From the replay of its hour too: that ends with it."""
        from console.screens.forecast import ForecastScreen

        self.come_home()
        self.go(ForecastScreen())

    def action_show_handover(self) -> None:
        from console.screens.handover import HandoverScreen

        self.go(HandoverScreen())

    def watched(self) -> Watched:
        """From any thread: the budgets of each service, and each engine as it is seen now."""
        if self.keeper is not None:
            targets = self.keeper.targets()
            return self.keeper.budgets(targets), targets
        snapshot = self.bridge.poll()
        return {}, {snapshot.engine.model or snapshot.source.target: snapshot}

    def action_show_fleet(self) -> None:
        from console.screens.fleet import FleetScreen

        self.go(FleetScreen())

    def action_cancel_answer(self) -> None:
        if self.talk.request_id is not None:
            self.bridge.cancel(self.talk.request_id)

    def action_new_conversation(self) -> None:
        self.action_cancel_answer()
        self.talk = Conversation()
        self.overview.show_answer(self.talk)

    def action_pause_display(self) -> None:
        """A recording itself stands still."""
        if self.player is not None:
            self.player.toggle()
        else:
            self.paused = not self.paused
        self.draw(self.bridge.poll())

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette("words of a command …"))

    def search_themes(self) -> None:
        self.push_screen(Palette("words of a theme …", [Themes]))

    def action_show_help(self) -> None:
        self.push_screen(HelpScreen(self.here))

    def action_help_quit(self) -> None:
        self.notify("q quits (escape first, out of the prompt)", timeout=3)

    async def action_quit(self) -> None:
        """Stop the engine, then leave; a second time leaves at once."""
        if self.bridge.phase is EnginePhase.STOPPING:
            self.exit()
            return
        run = self._runs.current if self._runs is not None else None
        if run is not None and not self._leaving:
            (self._leave_after if run.cancelled else self._ask_to_quit)(run)
            return
        self.stop_recording()
        self.bridge.stop()
        self.top_screen.show_header(self.screen_state(Snapshot()))

    def _ask_to_quit(self, run: PlaybookRun) -> None:
        def quit_then() -> None:
            self.runs.cancel()
            self._leave_after(run)

        text = f"{run.playbook.name} is cancelled; its report says what was done until then."
        ask_first(self, ConfirmScreen("Quit while a playbook runs?", text, "quit"), quit_then)

    def _leave_after(self, run: PlaybookRun) -> None:
        self._leaving = True
        self.run_worker(self._quit_after(run))

    def on_unmount(self) -> None:
        if "forecasts" in vars(self):  # processes at work would be waited for
            from console.control.forecasts import FORECAST

            self.forecasts.stop(FORECAST)

    async def _quit_after(self, run: PlaybookRun) -> None:
        """When the run has written its report, or takes too long to."""
        end = time.monotonic() + REPORT_PATIENCE_S
        while run.running and time.monotonic() < end:
            await asyncio.sleep(0.05)
        await self.action_quit()
