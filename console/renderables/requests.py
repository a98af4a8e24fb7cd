"""Requests as a table: the columns that matter most come first and stay when room is short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from console.renderables import format as fmt
from console.renderables.lines import Line, Span, Verbatim, columns_line, fit, pad, plain, text_line
from engine.snapshot import RequestRow


class RequestColumn(NamedTuple):
    title: str
    width: int
    """At the right edge if positive, at the left if negative."""
    read: Callable[[RequestRow], str]
    rank: Callable[[RequestRow], float | str | None]
    """What rows are sorted by."""


COLUMNS = (
    RequestColumn("request", -8, lambda r: r.id, lambda r: _number(r.id)),
    RequestColumn("state", -9, lambda r: r.state, lambda r: r.state),
    RequestColumn("position", 9, lambda r: fmt.count(r.position), lambda r: r.position),
    RequestColumn("prompt", 7, lambda r: fmt.count(r.prompt_tokens), lambda r: r.prompt_tokens),
    RequestColumn(
        "output/max", 11, lambda r: f"{r.output_tokens:,}/{r.max_tokens:,}",
        lambda r: r.output_tokens,
    ),
    RequestColumn("pages", 5, lambda r: fmt.count(r.pages), lambda r: r.pages),
    RequestColumn("wait", 7, lambda r: fmt.millis(r.wait_ms), lambda r: r.wait_ms),
    RequestColumn("TTFT", 7, lambda r: fmt.millis(r.ttft_ms), lambda r: r.ttft_ms),
    RequestColumn("age", 7, lambda r: fmt.duration(r.age_s), lambda r: r.age_s),
    RequestColumn("from", -8, lambda r: r.source or fmt.MISSING, lambda r: r.source),
    RequestColumn("preempted", 10, lambda r: fmt.count(r.preemptions), lambda r: r.preemptions),
    RequestColumn("tokenize", 8, lambda r: fmt.millis(r.tokenize_ms), lambda r: r.tokenize_ms),
)  # fmt: skip


def _number(name: str) -> float | str:
    """ "r-12" -> 12.0, so that r-9 comes before r-10; other names as they are."""
    digits = name.removeprefix("r-")
    return float(digits) if digits.isdigit() else name


def in_order(
    rows: Sequence[RequestRow], column: RequestColumn | None, reverse: bool
) -> Sequence[RequestRow]:
    """By the column, those without a value last; without a column in the engine's order."""
    if column is None:
        return list(reversed(rows)) if reverse else rows
    known = [(column.rank(row), row) for row in rows]
    with_value = [(value, row) for value, row in known if value is not None]
    with_value.sort(key=lambda pair: (isinstance(pair[0], str), pair[0]), reverse=reverse)
    return [*(row for _, row in with_value), *(row for value, row in known if value is None)]


def request_table(rows: Sequence[RequestRow], width: int, height: int, empty: str) -> list[Line]:
    """A heading and as many rows as fit; the last line says how many did not."""
    if height < 2:
        return []
    if not rows:
        return [text_line(empty, "faint")]
    shown = rows if len(rows) < height else rows[: height - 2]
    lines = [request_head(width), *(request_row(row, width) for row in shown)]
    if len(shown) < len(rows):
        lines.append(text_line(f"… {len(rows) - len(shown)} more", "faint"))
    return lines


def request_head(width: int, by: RequestColumn | None = None, reverse: bool = False) -> Line:
    """The columns' names; the one that the rows are sorted by has an arrow."""
    spans: Line = ()
    for column in _that_fit(width):
        sign = ("▼" if reverse else "▲") if column is by else ""
        title = plain(fit(text_line(column.title), abs(column.width) - len(sign))) + sign
        name = columns_line([(title, column.width)], "key" if sign else "label")
        spans = (*spans, *name, Span(" "))
    return spans


def request_row(row: RequestRow, width: int) -> Line:
    request, *others = _that_fit(width) or (COLUMNS[0],)
    cells = (Span(_cell(column.read(row), column.width)) for column in others)
    return fit((Verbatim(_cell(row.id, request.width)), *cells), width)


def _that_fit(width: int) -> Sequence[RequestColumn]:
    for count, column in enumerate(COLUMNS):
        width -= abs(column.width) + 1
        if width < 0:
            return COLUMNS[:count]
    return COLUMNS


def _cell(text: str, width: int) -> str:
    line = fit((Span(fmt.clean(text)),), abs(width))
    text = "".join(span.text for span in line)
    if width > 0:
        return f"{text:>{width}} "
    return "".join(span.text for span in pad((Span(text),), -width)) + " "
