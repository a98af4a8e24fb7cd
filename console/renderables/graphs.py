"""Sparklines, bars and charts in block characters. A gap in the data stays a gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from console.history import Series
from console.locale.lang import _
from console.renderables import format as fmt
from console.renderables.lines import (
    Line,
    Span,
    cells,
    fit,
    in_column,
    pad,
    spread,
    text_line,
    width_of,
)
from engine.snapshot import Histogram

BIN_S = 2.0
"""Seconds in one cell of a sparkline."""
CHART_SPAN_S = 120.0
"""Of charts on the overview."""
LONG_SPAN_S = 600.0
"""Of charts in a maximised panel."""
_BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"

Format = Callable[[float | None], str]


def blocks(values: Sequence[float | None], top: float, row: int = 0, rows: int = 1) -> str:
    """One text row of a graph `rows` high (row 0 is the lowest) scaled from 0 to `top`.

    A value above zero always shows; a missing one leaves a space.
    """
    cells = []
    for value in values:
        if value is None or top <= 0:
            cells.append(" " if value is None or row else "▁")
            continue
        eighths = max(1, round(min(value / top, 1.0) * rows * 8)) - row * 8
        cells.append(_BLOCKS[max(0, min(8, eighths))])
    return "".join(cells)


def bar(ratio: float | None, width: int) -> str:
    """A horizontal bar in eighths of a cell, at most `width` cells."""
    if ratio is None or not fmt.known(ratio):
        return ""
    eighths = round(max(0.0, min(ratio, 1.0)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def share_line(name: str, share: float | None, width: int, lead: int) -> Line:
    """A name in `lead` cells, the share as a bar, and in percent at the right edge."""
    head = (
        in_column(name, -lead),
        Span(bar(share, max(4, width - lead - 6)), "spark"),
    )
    return spread(head, text_line(fmt.percent(share), "value"), width)


def spark(label: str, series: Series, now: float, width: int, show: Format) -> Line:
    """ "waiting ▂▃▅▇▆  max 23 in 64 s": one line, one time scale for all sparklines."""
    label = _(label)
    head = pad(text_line(label, "label"), max(8, cells(label) + 1))
    room = width - width_of(head) - 18
    if room < 4:
        return fit(head, width)
    values = series.bins(now, room, BIN_S)
    seen = [value for value in values if value is not None]
    top = max(seen, default=0.0)
    note = f"max {show(top)} in {room * BIN_S:.0f} s" if seen else "nothing yet"
    return spread((*head, Span(blocks(values, top), "spark")), text_line(note, "faint"), width)


def chart(
    label: str,
    series: Series,
    now: float,
    width: int,
    rows: int,
    show: Format,
    span_s: float = LONG_SPAN_S,
) -> list[Line]:
    """A titled graph with a value axis from 0 and a time axis; `rows` lines in all."""
    if rows < 4 or width < 30:
        return [spark(label, series, now, width, show)][:rows]
    axis = 9
    room = width - axis - 1
    values = series.bins(now, room, span_s / room)
    seen = [value for value in values if value is not None]
    top = max(seen, default=0.0)
    newest = series.newest
    title = spread(text_line(label, "label"), text_line(f"now {show(newest)}", "value"), width)
    height = rows - 2
    body = []
    for row in reversed(range(height)):
        edge = {height - 1: show(top), 0: show(0.0)} if seen else {}
        tick = edge.get(row, "")
        body.append(
            (Span(f"{tick:>{axis}}│", "faint"), Span(blocks(values, top, row, height), "spark"))
        )
    return [title, *body, _time_axis(axis, room, span_s)]


def histogram(label: str, found: Histogram | None, width: int, rows: int) -> list[Line]:
    """Columns over buckets of time, see `columns`."""
    edges, counts = (found.edges_ms, found.counts) if found is not None else ((), ())
    return columns(label, edges, counts, width, rows, fmt.millis)


def columns(
    label: str,
    edges: Sequence[float],
    counts: Sequence[int],
    width: int,
    rows: int,
    show: Callable[[float], str],
) -> list[Line]:
    """A column a bucket, with a count axis and edges below; `rows` lines in all.

    Empty buckets at both ends are left out. The first bucket of a source that cannot see below
    its first edge reads "< 0.3 s".
    """
    if sum(counts) == 0 or not edges:
        return [text_line(label, "label"), text_line("no samples", "faint")][:rows]
    counts, labels = _buckets(edges, counts, show)
    total, axis = sum(counts), 9
    title = spread(text_line(label, "label"), text_line(f"n {total:,}", "value"), width)
    height, room = rows - 2, width - axis - 1
    if height < 2 or room < len(counts):
        return [title][:rows]
    cell = max(1, min(9, room // len(counts)))
    top = max(counts)
    body = []
    for row in reversed(range(height)):
        tick = fmt.count(top) if row == height - 1 else "0" if row == 0 else ""
        ink = "".join(_column(count, top, row, height, cell) for count in counts)
        body.append((Span(f"{tick:>{axis}}│", "faint"), Span(ink, "spark")))
    return [title, *body, _edge_axis(labels, cell, axis, room)]


def _column(count: int, top: int, row: int, height: int, cell: int) -> str:
    ink = blocks([count], top, row, height) if count else " "
    return ink * (cell - 1) + " " if cell > 1 else ink


def _buckets(
    edges: Sequence[float], counts: Sequence[int], show: Callable[[float], str]
) -> tuple[Sequence[int], list[str]]:
    """Counts from the first bucket that is not empty to the last, and the edges around them."""
    filled = [i for i, count in enumerate(counts) if count]
    first, last = filled[0], filled[-1]
    labels = [f"< {show(edges[0])}", *(show(edge) for edge in edges)]
    return counts[first : last + 1], labels[first : last + 2]


def _edge_axis(labels: Sequence[str], cell: int, axis: int, room: int) -> Line:
    """ "└50 ms  100 ms …": an edge stands under the left side of its column, where it fits."""
    text, free = "", 0
    for at, label in enumerate(labels):
        place = at * cell
        if place >= free and place + len(label) <= room:
            text = text.ljust(place) + label
            free = place + len(label) + 2
    return text_line(f"{'':>{axis}}└{text}", "faint")


def _time_axis(axis: int, room: int, span_s: float) -> Line:
    left, right = f"−{_(fmt.duration(span_s))}", _("now")
    dashes = "─" * max(0, room - cells(left) - cells(right) - 2)
    return text_line(f"{'':>{axis}}└{left} {dashes} {right}", "faint")
