"""A document on the terminal: sentences, bars, curves, tables and facts, the same for all commands.

All text goes through `clean` and is never read as markup: names and errors of others cannot
steer the terminal. Nothing is cut: where a table needs more than the width, its lines wrap.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from console.locale.lang import _
from console.renderables.plot import DOTS, curve, stacked
from playbooks.optlog import Record
from playbooks.optlog.page import Bullets, Heading, Paragraph, page
from playbooks.reports.document import Chart, Document, Facts, Table
from playbooks.reports.documents import document
from playbooks.reports.language import colon
from playbooks.reports.text import clean

STYLES = {
    "better": "green", "pass": "green", "worse": "red", "fail": "red", "inconclusive": "magenta",
    "unknown": "magenta", "warn": "yellow", "skip": "dim", "adopt": "green", "reject": "red",
    "rolled_back": "red", "misbehaves": "red",
}  # fmt: skip
PLOT_HEIGHT = 9
WIDEST = 100
"""Columns of a chart, on a terminal of any width."""
UNBOUNDED = 100_000
LEAST_TEXT = 12
"""Columns that a column of text has at least, before the table is wider than the terminal."""


def show_report(report: dict[str, Any]) -> None:
    show_document(document(report))


def show_document(doc: Document) -> None:
    """Everything that the other formats have, for people at a terminal."""
    shown = TerminalPage()
    for text in (doc.title, *doc.lead):
        shown.paragraph(text)
    for bars in doc.bars:
        shown.lines(["", bars.title, *stacked(bars.parts, shown.width)])
    for table in doc.tables:
        shown.table(table)
    for chart in doc.charts:
        shown.lines(chart_lines(chart, shown.width))
    for facts in doc.facts:
        shown.facts(facts)
    if doc.sentences:
        shown.lines([""])
    for text in doc.sentences:
        shown.paragraph(f"• {text}")
    for text in doc.warnings:
        shown.paragraph(f"note: {text}", "yellow")


def show_records(records: Sequence[Record]) -> None:
    """Records of the optimization log in full."""
    shown = TerminalPage()
    for record in records:
        for block in page(record):
            match block:
                case Heading(text, level):
                    shown.lines([""])
                    shown.paragraph(text, "bold" if level < 3 else "bold dim")  # not shown
                case Paragraph(text):
                    shown.paragraph(text)
                case Bullets(items):
                    for item in items:
                        text = item if isinstance(item, str) else colon().join(map(_, item))
                        shown.paragraph(f"• {text}")
                case Table():
                    shown.table(block)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Not the exit code of a failed gate, which is the library's way."""
        raise BrokenPipeError


class TerminalPage:
    """Standard output, for text that is not ours. In a pipe it is data, and has no colour, whatever
    a variable says."""

    def __init__(self) -> None:
        self._console = _Console(
            highlight=False, markup=False, emoji=False, force_terminal=sys.stdout.isatty()
        )
        self.width = min(self._console.width, WIDEST)
        """Of charts."""
        if not self._console.is_terminal:
            self._console.width = UNBOUNDED  # a pipe has no width: a line there stays a line

    def paragraph(self, text: str, style: str = "") -> None:
        if text:
            self._console.print(Text(clean(_(text)), style, overflow="fold"))

    def lines(self, lines: list[str]) -> None:
        """As they are, however wide."""
        for line in lines:
            self._console.print(Text(clean(_(line))), soft_wrap=True)

    def table(self, table: Table) -> None:
        shown = RichTable(box=None, pad_edge=False, show_header=any(c.name for c in table.columns))
        texts = [[clean(_(cell)) for cell in row] for row in table.texts()]
        names = [_(column.name) for column in table.columns]
        needed = 0
        for i, column in enumerate(table.columns):
            widest = max([cell_len(names[i]), *(cell_len(row[i]) for row in texts)])
            short = column.numeric or widest <= LEAST_TEXT
            shown.add_column(
                Text(names[i]),
                justify="right" if column.numeric else "left",
                min_width=widest if short else LEAST_TEXT,
                no_wrap=short,
                overflow="fold",
            )
            needed += (widest if short else LEAST_TEXT) + 2
        for row, said in zip(table.texts(), texts, strict=True):
            shown.add_row(*map(_styled, said, row))
        self.lines(["", table.title] if table.title else [""])
        self._print(shown, needed)

    def facts(self, facts: Facts) -> None:
        shown = RichTable(box=None, pad_edge=False, show_header=False)
        shown.add_column(no_wrap=True)
        shown.add_column(overflow="fold")
        rows = [(clean(_(name)), clean(_(text)), text) for name, text in facts.rows]
        for name, said, text in rows:
            shown.add_row(Text(name), _styled(said, text))
        self.lines(["", facts.title] if facts.title else [""])
        self._print(shown, LEAST_TEXT + max([0, *(cell_len(name) for name, *rest in rows)]))

    def _print(self, table: RichTable, needed: int) -> None:
        before = self._console.width
        self._console.width = max(before, needed)
        with self._console.capture() as drawn:
            self._console.print(table)
        for line in drawn.get().splitlines():
            print(line.rstrip())
        self._console.width = before


def _styled(said: str, cell: str) -> Text:
    return Text(said, STYLES.get(cell.partition(" (")[0], ""))


def chart_lines(chart: Chart, width: int) -> list[str]:
    """Every curve of a chart, with a word on what stands upright in it."""
    drawn = curve(
        [*map(chart.along, chart.x)], [line.y for line in chart.lines], width, PLOT_HEIGHT,
        chart.show, [(chart.along(at), text) for at, text in chart.labels],
        [chart.along(at) for _, at in chart.marks],
    )  # fmt: skip
    if not drawn:
        return []
    marks = ", ".join(chart.mark(*mark) for mark in chart.marks)
    names = [f"{dot} {_(line.name)}" for dot, line in zip(itertools.cycle(DOTS), chart.lines)]
    legend = ["   ".join(names)] if len(names) > 1 else []
    title = f"{chart.title} over {chart.x_label}{' ┊ ' + marks if marks else ''}"
    return ["", title, *legend, *drawn]
