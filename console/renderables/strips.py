"""Strips: curves one above the other over the same hours, so that what happens at one of them is
read downwards. An interval is a shade around its value, a limit a dashed line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from console.renderables import format as fmt
from console.renderables.graphs import Format, blocks
from console.renderables.lines import ALARM, Line, Role, Span, cells, pad, text_line

LEAD = 24
"""Cells of the names and of the value axis, its line included."""
WIDEST_HOUR = 6
CLIP = 3.0
"""A curve is cut off at so many times its limit: the rest of the day stays to be seen."""
BELOW, ABOVE, LIMIT, CURSOR = "▒", "░", "╌", "┊"


class Band(NamedTuple):
    """A value and the interval that it is expected in."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Strip:
    name: str
    bands: Sequence[Band]
    """One an hour."""
    show: Format
    limit: float | None = None
    limit_name: str = ""

    @property
    def highest(self) -> tuple[float, bool]:
        """What the uppermost row ends at, and whether something lies beyond."""
        known = [v for band in self.bands for v in (band.value, band.high) if fmt.known(v)]
        top = max((v for v in known if v is not None), default=0.0)
        if self.limit is None or not top:
            return top, False
        if top > CLIP * self.limit:
            return CLIP * self.limit, True
        return (max(top, self.limit), False) if self.limit < CLIP * top else (top, False)


@dataclass(frozen=True)
class Axis:
    """The hours, in a width: several cells an hour, or several hours a cell."""

    hours: int
    width: int

    @property
    def cell(self) -> int:
        return max(1, min(WIDEST_HOUR, self.width // max(self.hours, 1)))

    @property
    def each(self) -> int:
        """Hours of a column."""
        return max(1, -(-self.hours // max(self.width, 1)))

    @property
    def columns(self) -> int:
        return -(-self.hours // self.each)

    def column(self, hour: int) -> int:
        return hour // self.each

    def of(self, column: int) -> range:
        """Its hours."""
        return range(column * self.each, min((column + 1) * self.each, self.hours))


def strips(
    shown: Sequence[Strip],
    labels: Sequence[str],
    marked: Sequence[bool],
    chosen: int,
    width: int,
    rows: int,
) -> list[Line]:
    """`rows` lines for each strip, then one of the hours that are `marked`, if any, and the hours'
    `labels`. The hour `chosen` stands out."""
    axis = Axis(len(labels), max(width - LEAD, 1))
    lines = [line for strip in shown for line in _strip(strip, axis, chosen, rows)]
    if any(marked):
        ink = [ALARM if any(marked[i] for i in axis.of(c)) else " " for c in range(axis.columns)]
        head = pad(text_line("saturated", "label"), LEAD - 1)
        lines.append((*head, Span("│", "faint"), Span(_wide(ink, axis), "trouble")))
    return [*lines, *_foot(labels, axis, chosen)]


def _strip(strip: Strip, axis: Axis, chosen: int, rows: int) -> Iterator[Line]:
    top, is_cut = strip.highest
    bands = [_worst([strip.bands[i] for i in axis.of(c)]) for c in range(axis.columns)]
    limit_row = None
    if strip.limit is not None and 0 < strip.limit <= top:
        limit_row = min(int(strip.limit / top * rows), rows - 1)
    for row in reversed(range(rows)):
        tick = ("> " if is_cut else "") + strip.show(top) if row == rows - 1 else ""
        if row == 0 and rows > 1:
            tick = strip.show(0.0)
        yield (
            *_head(strip, row, rows, tick),
            *_ink(strip, bands, axis, chosen, row, rows, limit_row),
        )


def _head(strip: Strip, row: int, rows: int, tick: str) -> Line:
    name, role = ("", "faint")  # not shown
    if row == rows - 1:
        name, role = strip.name, "label"
    elif row == rows - 2:
        name = strip.limit_name
    room = LEAD - 1 - cells(tick)
    return (*pad((Span(name, role),), room), Span(f"{tick}│", "faint"))  # type: ignore[arg-type]


def _ink(
    strip: Strip, bands: Sequence[Band], axis: Axis, chosen: int, row: int, rows: int,
    limit_row: int | None,
) -> Iterator[Span]:  # fmt: skip
    top = strip.highest[0]
    drawn: list[tuple[str, Role]] = []
    for column, band in enumerate(bands):
        is_chosen = column == axis.column(chosen)
        ink = blocks([band.value], top, row, rows)
        role: Role = "value" if is_chosen else "spark"
        if strip.limit is not None and (band.value or 0.0) > strip.limit:
            role = "trouble"
        middle = (row + 0.5) / rows * top
        if ink == "█" and band.low is not None and middle > band.low:
            ink = BELOW
        elif ink == " ":
            if band.high is not None and (band.value or 0.0) < middle <= band.high:
                ink = ABOVE
            else:
                ink, role = (LIMIT if row == limit_row else CURSOR if is_chosen else " "), "faint"
        drawn += [(ink, role)] * axis.cell
    for role, run in groupby(drawn, key=lambda cell: cell[1]):
        yield Span("".join(ink for ink, _ in run), role)


def _worst(bands: Sequence[Band]) -> Band:
    """Of several hours in one column the highest."""
    return max(bands, key=lambda band: -1.0 if band.value is None else band.value)


def _foot(labels: Sequence[str], axis: Axis, chosen: int) -> list[Line]:
    line = ["─"] * axis.columns
    text, free = "", 0
    for column in range(axis.columns):
        place, label = column * axis.cell, labels[axis.of(column)[0]]
        if place >= free and place + len(label) <= axis.width:
            text = text.ljust(place) + label
            free = place + len(label) + 2
    at = axis.column(chosen)
    before, own, after = (
        "".join(part * axis.cell for part in line[:at]), "━" * axis.cell,
        "".join(part * axis.cell for part in line[at + 1 :]),
    )  # fmt: skip
    corner = Span(f"{'':>{LEAD - 1}}└", "faint")
    return [
        (corner, Span(before, "faint"), Span(own, "key"), Span(after, "faint")),
        text_line(f"{'':>{LEAD}}{text}", "faint"),
    ]


def _wide(ink: Sequence[str], axis: Axis) -> str:
    return "".join(part * axis.cell for part in ink)
