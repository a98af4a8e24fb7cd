"""Help: what can be done in the present place, and what the signs mean there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from console import actions
from console.actions import Scope
from console.locale.lang import _
from console.panels.lineview import LineView
from console.renderables.header import MARKS, WORDS
from console.renderables.keys import help_lines
from console.renderables.lines import ALARM, BLANK, Line, Role, Span, in_column
from console.renderables.pagemap import GLYPHS, NAMES
from console.renderables.request import GLYPHS as STAGES

NAMES_OF_PLACES = {
    actions.OVERVIEW: "Overview",
    actions.PROMPT: "Overview",
    actions.FILTER: "The filter",
    actions.REQUESTS: "Requests",
    actions.REQUEST: "One request",
    actions.PLAYBOOKS: "Playbooks",
    actions.RUN: "A playbook's run",
    actions.CHECKLISTS: "Checklists",
    actions.CHECKLIST: "One checklist",
    actions.LOG: "Optimization log",
    actions.RECORD: "One entry of the log",
    actions.FLEET: "Fleet",
    actions.FORECAST: "Forecast",
    actions.HANDOVER: "Handover",
}


class Sign(NamedTuple):
    glyph: str
    role: Role
    meaning: str


def legend(where: str) -> list[Line]:
    lines = []
    if where in (actions.OVERVIEW, actions.PROMPT):
        lines.append(_signs("pages", [Sign(*GLYPHS[s], NAMES[s]) for s in GLYPHS]))
    if where == actions.REQUEST:
        lines.append(
            _signs("stages", [Sign(glyph, "spark", name) for name, glyph in STAGES.items()])
        )
    return [
        *lines,
        _signs("numbers", [Sign(*MARKS[state], WORDS[state]) for state in MARKS]),
        _signs(
            "marks", [Sign(ALARM, "trouble", "look at this"), Sign("–", "text", "not reported")]
        ),
    ]


def _signs(name: str, signs: Sequence[Sign]) -> Line:
    line: Line = (Span(" "), in_column(name, -13))
    for glyph, role, meaning in signs:
        line = (*line, Span(glyph, role), Span(f" {_(meaning)}  "))
    return line


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,space", "close", "close", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "scroll(-12)", show=False),
        Binding("pagedown", "scroll(12)", show=False),
    ]

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._name = NAMES_OF_PLACES[scope.where]
        self._lines = [*help_lines(scope), BLANK, *legend(scope.where)]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help-frame") as frame:
            frame.border_title = _(f"Keys: {_(self._name)}")
            frame.border_subtitle = _("↑ ↓ scroll · esc closes")
            frame.can_focus = False
            yield LineView(id="help")

    def on_mount(self) -> None:
        self.query_one("#help", LineView).fill(self._lines)

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, rows: int) -> None:
        self.query_one("#help-frame", VerticalScroll).scroll_relative(y=rows, animate=False)
