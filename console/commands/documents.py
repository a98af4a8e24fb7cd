"""A measurement's document on the terminal: sentences, bars, curves and tables."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from console.renderables.plot import curve, stacked
from playbooks.reports.document import Chart, Table
from playbooks.reports.documents import document

STYLES = {
    "better": "green", "pass": "green", "worse": "red", "fail": "red", "inconclusive": "magenta",
    "warn": "yellow",
}  # fmt: skip
PLOT_HEIGHT = 9
WIDEST = 100


def show_document(report: dict[str, Any]) -> None:
    """Everything that the other formats have, for people at a terminal."""
    console = Console(highlight=False, soft_wrap=True)
    doc, width = document(report), min(console.width, WIDEST)
    for text in (doc.title, *doc.lead):
        console.print(text, markup=False, soft_wrap=False)
    for bars in doc.bars:
        console.print(f"\n{bars.title}", markup=False)
        for line in stacked(bars.parts, width):
            console.print(line, markup=False)
    for table in doc.tables:
        console.print()
        console.print(rich_table(table), soft_wrap=False)
    for chart in doc.charts:
        for line in chart_lines(chart, width):
            console.print(line, markup=False)
    if doc.sentences:
        console.print()
    for text in doc.sentences:
        console.print(f"• {text}", markup=False, soft_wrap=False)
    for text in doc.warnings:
        console.print(f"note: {text}", markup=False, style="yellow")


def rich_table(table: Table) -> RichTable:
    shown = RichTable(box=None, pad_edge=False, title=table.title, title_justify="left")
    for column in table.columns:
        shown.add_column(column.name, justify="right" if column.numeric else "left")
    for row in table.texts():
        shown.add_row(*(_styled(cell) for cell in row))
    return shown


def _styled(cell: str) -> str:
    from rich.markup import escape

    style = STYLES.get(cell)
    return f"[{style}]{cell}[/{style}]" if style else escape(cell)


def chart_lines(chart: Chart, width: int) -> list[str]:
    """Every curve of a chart, with a word on what stands upright in it."""
    lines: list[str] = []
    for one in chart.lines:
        drawn = curve(chart.x, one.y, width, PLOT_HEIGHT, chart.show, [at for _, at in chart.marks])
        if drawn:
            marks = ", ".join(f"{name} {at:g}" for name, at in chart.marks)
            lines += ["", f"{chart.title} over {chart.x_label}{' ┊ ' + marks if marks else ''}"]
            lines += drawn
    return lines
