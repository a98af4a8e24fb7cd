"""The conversation as wrapped lines: who speaks at the left, the answer's cost below it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.cells import cell_len, chop_cells

from console.control.conversation import Turn
from console.renderables.lines import BLANK, Line, Role, Span

_INDENT = 2


def conversation(turns: Sequence[Turn], running: bool, width: int) -> list[Line]:
    lines: list[Line] = []
    for turn in turns:
        mine = turn.role == "user"
        if mine and lines:
            lines.append(BLANK)
        role: Role = "operator" if mine else "text"
        lines += _block("› " if mine else "  ", turn.text, role, width)
        if turn.note:
            lines.append((Span(" " * _INDENT), Span(turn.note, _note_role(turn))))
    if running:
        lines.append((Span(" " * _INDENT), Span("… answering", "faint")))
    return lines


def _note_role(turn: Turn) -> Role:
    return "trouble" if turn.failed else "faint"


def _block(head: str, text: str, role: Role, width: int) -> list[Line]:
    rows = wrap(text, max(1, width - _INDENT)) if text else ()
    return [
        (Span(head if at == 0 else " " * _INDENT, "key"), Span(row, role))
        for at, row in enumerate(rows)
    ]


@lru_cache(maxsize=256)
def wrap(text: str, width: int) -> tuple[str, ...]:
    """Break at spaces where possible, anywhere where not; widths are terminal cells."""
    rows: list[str] = []
    for paragraph in text.replace("\t", "    ").splitlines():
        row = ""
        for word in paragraph.split(" "):
            grown = f"{row} {word}" if row else word
            if cell_len(grown) <= width:
                row = grown
                continue
            if row:
                rows.append(row)
            *full, row = chop_cells(word, width) or [""]
            rows += full
        rows.append(row)
    return tuple(rows)
