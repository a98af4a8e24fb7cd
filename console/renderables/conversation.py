"""The conversation as wrapped lines: who speaks at the left, the answer's cost below it."""

from __future__ import annotations

from collections.abc import Sequence

from console.control.conversation import Turn
from console.locale.lang import _
from console.renderables.lines import BLANK, Line, Role, Span, Verbatim
from console.renderables.wrapping import wrap

_INDENT = 2


def conversation(turns: Sequence[Turn], running: bool, width: int) -> list[Line]:
    lines: list[Line] = []
    for turn in turns:
        mine = turn.role == "user"
        if mine and lines:
            lines.append(BLANK)
        role: Role = "operator" if mine else "text"
        lines += _block("› " if mine else "  ", turn.text, role, width)
        for row in wrap(_(turn.note), max(1, width - _INDENT)) if turn.note else ():
            lines.append((Span(" " * _INDENT), Span(row, _note_role(turn))))
    if running:
        lines.append((Span(" " * _INDENT), Span("… answering", "faint")))
    return lines


def _note_role(turn: Turn) -> Role:
    return "trouble" if turn.failed else "faint"


def _block(head: str, text: str, role: Role, width: int) -> list[Line]:
    rows = wrap(text, max(1, width - _INDENT)) if text else ()
    return [
        (Span(head if at == 0 else " " * _INDENT, "key"), Verbatim(row, role))
        for at, row in enumerate(rows)
    ]
