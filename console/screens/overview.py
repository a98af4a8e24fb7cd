"""The overview: six panels, the answer pane, the prompt line."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Input, Static

from console import actions
from console.conversation import Conversation
from console.panels.answer import AnswerPane
from console.panels.bars import BannerLine, FooterLine, HeaderLine
from console.panels.panel import Panel
from console.panels.specs import PANELS
from console.renderables.frame import Frame

if TYPE_CHECKING:
    from console.app import Console

SMALLEST = (62, 20)
HINT = "i to ask the model; the load goes on"
READONLY_HINT = "read-only: nothing here changes the engine"


class Overview(Screen[None]):
    AUTO_FOCUS = ""

    def __init__(self, readonly: bool, talk: Conversation) -> None:
        super().__init__()
        self.readonly = readonly
        self._frame = Frame(readonly=readonly)
        # Made here and kept: a look-up in the DOM at every tick would cost more than a panel.
        self.header = HeaderLine(id="header")
        self.banner = BannerLine(id="banner")
        self.panels = [Panel(spec) for spec in PANELS]
        self.answer = AnswerPane(talk)
        self.prompt = Input(
            placeholder=READONLY_HINT if readonly else HINT,
            compact=True,
            id="prompt",
            disabled=readonly,
        )
        self.footer = FooterLine(id="footer")

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.banner
        yield Container(*self.panels, id="panels")
        yield self.answer
        yield self.prompt
        yield self.footer
        yield Static(f"This window is too small: at least {SMALLEST[0]}×{SMALLEST[1]}", id="small")

    def on_mount(self) -> None:
        self.prompt.cursor_blink = False

    # parts

    @property
    def console_app(self) -> Console:
        return cast("Console", self.app)

    @property
    def maximised(self) -> Panel | None:
        return next((panel for panel in self.panels if panel.maximised), None)

    @property
    def where(self) -> str:
        return actions.PROMPT if self.prompt.has_focus else actions.OVERVIEW

    # drawing

    def show(self, frame: Frame) -> None:
        """Draw all; `show_header` alone is for a display that is held still."""
        self._frame = frame
        self.show_header(frame)
        for panel in self.panels:
            panel.show(frame)

    def show_header(self, frame: Frame) -> None:
        self.header.show(frame)
        self.banner.show(frame)

    def show_answer(self, talk: Conversation) -> None:
        self.set_class(bool(talk.turns), "-talking")
        self.answer.show(talk)

    def _show_footer(self) -> None:
        self.footer.show(self.where, self.readonly)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._redraw)

    def _redraw(self) -> None:
        self._show_footer()
        self.show(self._frame)

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _keyboard_moved(self) -> None:
        self.call_after_refresh(self._show_footer)

    @on(Input.Submitted)
    def _send(self, event: Input.Submitted) -> None:
        if event.value.strip():
            event.input.clear()
            self.answer.follow()
            self.console_app.ask(event.value.strip())

    # actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return True if actions.allowed(action, self.readonly) else None

    def action_maximise_panel(self, panel_id: str) -> None:
        for panel in self.panels:
            panel.set_class(panel.id == panel_id and not panel.maximised, "-maximised")
        self.set_class(self.maximised is not None, "-one")
        self.call_after_refresh(self._redraw)

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
        self.answer.scroll_pages(pages)

    def action_copy_text(self) -> None:
        chosen = [self.maximised] if self.maximised is not None else self.panels
        text = "\n\n".join(f"{panel.spec.title}\n{panel.text}" for panel in chosen)
        self.app.copy_to_clipboard(text)
        what = f"{chosen[0].spec.title}" if len(chosen) == 1 else "all panels"
        self.notify(f"copied {what}: {len(text.splitlines())} lines", timeout=2)
