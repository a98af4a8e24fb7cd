"""Pages of words and tables as lines of the screen: records of the log, reports of playbooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from rich.cells import cell_len

from console.locale.lang import _, said
from console.renderables import format as fmt
from console.renderables.lines import ALARM, BLANK, Line, Role, Span, Verbatim, fit
from console.renderables.wrapping import wrap
from playbooks.optlog.page import Block, Bullets, Heading, Paragraph
from playbooks.reports.document import Table
from playbooks.reports.documents import document
from playbooks.reports.language import Name, colon

GAP = 2
LEAST_COLUMN = 6
VERDICT_ROLES: dict[str, Role] = {
    "pass": "good", "better": "good", "adopt": "good", "fail": "trouble", "worse": "trouble",
    "warn": "trouble", "error": "trouble", "reject": "trouble", "rolled_back": "trouble",
}  # fmt: skip
VERDICT_MARKS = {
    "pass": "✓", "fail": "✗", "error": "✗", "warn": "▲", "inconclusive": "?", "unknown": "?",
}  # fmt: skip
"""A verdict is read without its colour."""


def verdict_span(verdict: str) -> Span:
    mark = VERDICT_MARKS.get(verdict, "·")
    return Span(f"{mark} {verdict}", VERDICT_ROLES.get(verdict, "text"))


def block_lines(blocks: Iterable[Block], width: int) -> list[Line]:
    lines: list[Line] = []
    for block in blocks:
        match block:
            case Heading(text, _):
                lines += [BLANK] * bool(lines) + words(text, width, role="title")
            case Paragraph(text):
                lines += words(text, width)
            case Bullets(items):
                for item in items:
                    text = item if isinstance(item, str) else colon().join(map(_, item))
                    lines += words(text, width, "• ")
            case Table():
                lines += table_lines(block, width)
    return lines


def words(text: str, width: int, head: str = "", role: Role = "text") -> list[Line]:
    """A paragraph, wrapped; its first line begins with `head`."""
    rows = wrap(fmt.clean(_(text)), max(1, width - len(head)))
    kind = Verbatim if isinstance(text, Name) else Span
    return [
        (Span(head if at == 0 else " " * len(head)), kind(r, role)) for at, r in enumerate(rows)
    ]


def table_lines(table: Table, width: int) -> list[Line]:
    """Columns as wide as what is in them; the widest gives way where room is short."""
    rows = [[fmt.clean(_(str(cell))) for cell in row] for row in table.texts()]
    heads = [_(column.name) for column in table.columns]
    widths = _widths([heads, *rows], width)
    right = [column.numeric for column in table.columns]
    lines = [*words(table.title, width, role="label")] if table.title else []
    lines.append(_row(heads, widths, right, "label"))
    return [*lines, *(_row(row, widths, right, "text") for row in rows)]


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [max(cell_len(row[at]) for row in rows) for at in range(len(rows[0]))]
    while sum(widths) + GAP * (len(widths) - 1) > width and max(widths) > LEAST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], role: Role) -> Line:
    line: Line = ()
    for text, width, is_right in zip(cells, widths, right, strict=True):
        if line:
            line = (*line, Span(" " * GAP))
        cell = fit((Span(text, VERDICT_ROLES.get(text, role)),), width)
        blank = Span(" " * (width - cell_len("".join(span.text for span in cell))))
        line = (*line, blank, *cell) if is_right else (*line, *cell, blank)
    return line


def document_lines(report: dict[str, Any], width: int) -> list[Line]:
    """A report as it reads in files: what is said first, what warns, tables, facts."""
    doc = document(report)
    lines = words(doc.title, width, role="title")
    for text in doc.lead:
        lines += words(text, width)
    for text in doc.warnings:
        lines += words(text, width, f"{ALARM} ", role="trouble")
    for table in doc.tables:
        lines += [BLANK, *_wrapped(table, width)]
    for facts in doc.facts:
        lines += [BLANK, *words(facts.title, width, role="title")]
        for name, text in facts.rows:
            lines += words(_labelled(name, text) if name else text, width, "• ")
    return lines


def _wrapped(table: Table, width: int) -> list[Line]:
    """One below the other, each row as `name: text`, where a table would cut its words."""
    lines = words(table.title, width, role="title")
    for row in table.texts():
        first, *rest = zip((column.name for column in table.columns), row, strict=True)
        lines += words(_labelled(*first), width, "• ", role="value")
        told = [_labelled(name, text) for name, text in rest if text and text != fmt.MISSING]
        lines += words(reduce(_followed, told), width, "  ") if told else []
    return lines


def _labelled(label: str, text: str) -> str:
    return said("{label}: {text}", label=label, text=text)


def _followed(first: str, more: str) -> str:
    return said("{first}; {more}", first=first, more=more)
