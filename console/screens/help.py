"""Help: the actions of the registry, and what the glyphs mean."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from console import actions
from console.panels.lineview import LineView
from console.renderables.header import MARKS, WORDS
from console.renderables.lines import ALARM, BLANK, Line, Span
from console.renderables.pagemap import GLYPHS, NAMES


def legend() -> list[Line]:
    pages: Line = (Span(" pages        ", "label"),)
    for state, (glyph, role) in GLYPHS.items():
        pages = (*pages, Span(glyph, role), Span(f" {NAMES[state]}  "))
    source: Line = (Span(" numbers      ", "label"),)
    for state_, (mark, role) in MARKS.items():
        source = (*source, Span(mark, role), Span(f" {WORDS[state_]}  "))
    marks: Line = (
        Span(" marks        ", "label"),
        Span(ALARM, "trouble"),
        Span(" look at this   – not reported"),
    )
    return [pages, source, marks]


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "dismiss", "close", show=False)
    ]

    def __init__(self, readonly: bool) -> None:
        super().__init__()
        self._lines = [*actions.help_lines(readonly), BLANK, *legend()]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help-frame") as frame:
            frame.border_title = "Keys"
            frame.border_subtitle = "esc closes"
            yield LineView(id="help")

    def on_mount(self) -> None:
        view = self.query_one("#help", LineView)
        view.styles.height = len(self._lines)
        self.call_after_refresh(view.set_lines, self._lines)
