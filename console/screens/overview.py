"""The overview: six panels, the answer pane, the prompt line."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from console import actions
from console.control.conversation import Conversation
from console.locale.lang import _
from console.panels.answer import AnswerPane
from console.panels.panel import Panel
from console.panels.specs import LAYOUT, PANELS
from console.renderables import machine
from console.renderables.screen_state import ScreenState
from console.screens.base_screen import BaseScreen

HINT = "i to ask the model; the load goes on"
RECORDING_HINT = "a recording: nothing in it can be changed"
READONLY_HINT = "read-only: nothing here changes the engine"


class Overview(BaseScreen):
    PLACE = actions.OVERVIEW
    INPUT_PLACE = actions.PROMPT

    def __init__(self, readonly: bool, talk: Conversation) -> None:
        super().__init__()
        self._state = ScreenState(readonly=readonly)
        self.panels = [Panel(spec) for spec in PANELS]
        self.answer = AnswerPane(talk)
        self.prompt = Input(
            placeholder=_(READONLY_HINT if readonly else HINT),
            compact=True,
            id="prompt",
            disabled=readonly,
        )

    def body(self) -> Iterable[Widget]:
        yield Container(*sorted(self.panels, key=lambda p: LAYOUT.index(p.spec.id)), id="panels")
        yield self.answer
        yield self.prompt

    def on_mount(self) -> None:
        self.prompt.cursor_blink = False
        if self.console_app.player is not None:
            self.prompt.placeholder = _(RECORDING_HINT)

    # parts

    @property
    def maximised(self) -> Panel | None:
        return next((panel for panel in self.panels if panel.maximised), None)

    def shows(self, panel_id: str) -> bool:
        """Whether that panel is maximised."""
        return self.maximised is not None and self.maximised.id == panel_id

    @property
    def where(self) -> str:
        return actions.PROMPT if self.prompt.has_focus else actions.OVERVIEW

    # drawing

    def show_body(self, state: ScreenState) -> None:
        alone = state.watched and len(state.told(machine.fields(state.snapshot))) < 2
        self.set_class(alone, "-no-machine")
        self.set_class(bool(state.budgets), "-budget")
        for panel in self.panels:
            panel.show(state)

    def show_answer(self, talk: Conversation) -> None:
        self.set_class(bool(talk.turns), "-talking")
        self.answer.show(talk)

    @on(Input.Submitted)
    def _send(self, event: Input.Submitted) -> None:
        if event.value.strip():
            event.input.clear()
            self.answer.follow()
            self.console_app.ask(event.value.strip())

    # actions

    def action_maximise_panel(self, panel_id: str) -> None:
        for panel in self.panels:
            panel.set_class(panel.id == panel_id and not panel.maximised, "-maximised")
        self.set_class(self.maximised is not None, "-one")
        self.call_after_refresh(self.redraw)

    def action_focus_prompt(self) -> None:
        if self.answer.talk.turns:
            self.add_class("-talking")
        self.set_focus(self.prompt)

    def action_go_back(self) -> None:
        """One step: out of the prompt, then out of the panel, then close the answer."""
        maximised = self.maximised
        if self.prompt.has_focus:
            self.set_focus(None)
        elif maximised is not None:
            self.action_maximise_panel(str(maximised.id))
        else:
            self.remove_class("-talking")

    def action_scroll_answer(self, pages: int) -> None:
        self.answer.move(pages * self.answer.page)

    def copied(self) -> str:
        chosen = [self.maximised] if self.maximised is not None else self.panels
        return "\n\n".join(f"{_(panel.spec.title)}\n{panel.text}" for panel in chosen)
