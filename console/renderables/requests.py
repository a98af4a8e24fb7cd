"""Requests as a table: the columns that matter most come first and stay when room is short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from console import format as fmt
from console.renderables.lines import Line, Span, fit, pad, text_line
from engine.snapshot import RequestRow


class Column(NamedTuple):
    title: str
    width: int
    """At the right edge if positive, at the left if negative."""
    read: Callable[[RequestRow], str]


COLUMNS = (
    Column("request", -10, lambda r: r.id),
    Column("state", -10, lambda r: r.state),
    Column("prompt tok", 11, lambda r: fmt.count(r.prompt_tokens)),
    Column("output / max tok", 17, lambda r: f"{r.output_tokens:,} / {r.max_tokens:,}"),
    Column("pages", 7, lambda r: fmt.count(r.pages)),
    Column("wait", 9, lambda r: fmt.millis(r.wait_ms)),
    Column("TTFT", 9, lambda r: fmt.millis(r.ttft_ms)),
    Column("age", 9, lambda r: fmt.duration(r.age_s)),
    Column("cached tok", 11, lambda r: fmt.count(r.position)),
    Column("from", -9, lambda r: r.source or fmt.MISSING),
)


def request_table(rows: Sequence[RequestRow], width: int, height: int, empty: str) -> list[Line]:
    """A heading and as many rows as fit; the last line says how many did not."""
    if height < 2:
        return []
    if not rows:
        return [text_line(empty, "faint")]
    columns = _that_fit(width)
    head = "".join(_cell(column.title, column.width) for column in columns)
    shown = rows if len(rows) < height else rows[: height - 2]
    lines = [text_line(head, "label")]
    lines += [_row(row, columns, width) for row in shown]
    if len(shown) < len(rows):
        lines.append(text_line(f"… {len(rows) - len(shown)} more", "faint"))
    return lines


def _that_fit(width: int) -> list[Column]:
    columns: list[Column] = []
    for column in COLUMNS:
        width -= abs(column.width) + 1
        if width < 0:
            break
        columns.append(column)
    return columns


def _row(row: RequestRow, columns: Sequence[Column], width: int) -> Line:
    line: Line = ()
    for column in columns:
        line = (*line, Span(_cell(column.read(row), column.width), "value"))
    return fit(line, width)


def _cell(text: str, width: int) -> str:
    if width > 0:
        return f"{text:>{width}} "
    line = pad((Span(text),), -width)
    return "".join(span.text for span in line) + " "
