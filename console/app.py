"""The application: one factory for the command line and the tests. It holds no engine state."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.message import Message
from textual.theme import Theme

from console import actions
from console.bridge import Bridge, EngineLike, Load
from console.conversation import Conversation
from console.history import History
from console.messages import AnswerArrived, EngineDown, EngineFailed, EngineUp
from console.panels.panel import WIDE
from console.renderables.frame import Frame, Phase
from console.screens.help import HelpScreen
from console.screens.overview import SMALLEST, Overview
from console.screens.palette import ActionCommands
from engine.snapshot import Snapshot

NIGHT = Theme(
    name="evewatch",
    primary="#7d9fc0",
    secondary="#8f8fb5",
    accent="#e3a857",
    warning="#e3a857",
    error="#e3a857",
    success="#86b38a",
    foreground="#ced3da",
    background="#12151a",
    surface="#171b21",
    panel="#1f242c",
)
ANSWER_INTERVAL_S = 0.1
"""A fast answer is drawn at most so often."""


def build_app(
    engine: EngineLike,
    *,
    readonly: bool = False,
    refresh_hz: float = 2.0,
    load: Load | None = None,
    clock: Callable[[], float] = time.time,
) -> Console:
    """The console on `engine`, which it starts and stops itself.

    `load` is started once the engine is up. `clock` is Unix seconds. After run(), `exit_error`
    says why the engine could not start, None if it did.
    """
    return Console(engine, readonly, refresh_hz, load, clock)


class Console(App[None]):
    TITLE = "EveWatch"
    CSS_PATH = "theme.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*actions.bindings()]
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
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.animation_level = "none"
        self.readonly = readonly
        self.exit_error: Exception | None = None
        self.history = History()
        self.talk = Conversation()
        self.paused = False
        self.bridge = Bridge(engine, self._post, load, clock)
        self.overview = Overview(readonly, self.talk)
        self._refresh_s = 1.0 / refresh_hz
        self._ticks = 0
        self._answer_due = False

    def get_default_screen(self) -> Overview:
        return self.overview

    def on_mount(self) -> None:
        self.register_theme(NIGHT)
        self.theme = NIGHT.name
        self.bridge.start()
        self.set_interval(self._refresh_s, self.tick)
        self.call_after_refresh(self.tick)

    # numbers

    def tick(self) -> None:
        """Read the latest Snapshot; draw it, every second time only while requests wait."""
        snapshot = self.bridge.poll()
        self.history.push(snapshot)
        self._ticks += 1
        saturated = (snapshot.queue.waiting or 0) > 0
        if saturated and self._ticks % 2:
            return
        self.draw(snapshot)

    def draw(self, snapshot: Snapshot) -> None:
        if not self.overview.is_mounted:
            return
        frame = self.frame(snapshot)
        if self.paused:
            self.overview.show_header(frame)
        else:
            self.overview.show(frame)

    def frame(self, snapshot: Snapshot) -> Frame:
        return Frame(
            snapshot=snapshot,
            history=self.history,
            phase=self.bridge.phase,
            phase_s=self.bridge.phase_s,
            loading=f"model {self.bridge.engine.config.model}",
            readonly=self.readonly,
            paused=self.paused,
        )

    # messages

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
        if self.bridge.phase is not Phase.UP:
            self.notify("the engine is not up yet", severity="warning")
        elif self.talk.request_id is not None:
            self.notify("an answer is running; ctrl+g cancels it", severity="warning")
        else:
            self.talk.ask(text, self.bridge.ask)
            self.overview.show_answer(self.talk)

    # actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return True if actions.allowed(action, self.readonly) else None

    def action_cancel_answer(self) -> None:
        if self.talk.request_id is not None:
            self.bridge.cancel(self.talk.request_id)

    def action_new_conversation(self) -> None:
        self.action_cancel_answer()
        self.talk = Conversation()
        self.overview.show_answer(self.talk)

    def action_pause_display(self) -> None:
        self.paused = not self.paused
        self.draw(self.bridge.poll())

    def action_change_cap(self, step: int) -> None:
        if self.bridge.change_cap(step) is None:
            self.notify("this engine reports no cap", severity="warning")
        self.draw(self.bridge.poll())

    def action_toggle_admission(self) -> None:
        self.bridge.toggle_admission()
        self.draw(self.bridge.poll())

    def action_show_help(self) -> None:
        self.push_screen(HelpScreen(self.readonly))

    def action_help_quit(self) -> None:
        self.notify("q quits (escape first, out of the prompt)", timeout=3)

    async def action_quit(self) -> None:
        """Stop the engine, then leave; a second time leaves at once."""
        if self.bridge.phase is Phase.STOPPING:
            self.exit()
            return
        self.bridge.stop()
        self.overview.show_header(self.frame(replace(Snapshot())))
