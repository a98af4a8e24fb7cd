"""Curves and stacked bars for the terminal, as plain lines of text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

Show = Callable[[float], str]
DOTS, TRACE, MARK = "●○◆◇▲△", "·", "┊"
"""A dot for each curve of a chart."""
SHADES = "█▓▒░▞▚▘▗▖▝"
"""One for each part of a bar, again from the first when they run out."""


def curve(
    x: Sequence[float],
    lines: Sequence[Sequence[float | None]],
    width: int,
    height: int,
    show: Show,
    labels: Sequence[tuple[float, str]],
    marks: Sequence[float] = (),
) -> list[str]:
    """Dots joined by a trace, for each of `lines`; y starts at zero. `x`, `labels` and `marks`
    (they stand upright) lie from 0 to 1 along the x axis.

    `height` rows of curve, then the axis and its labels. Empty without a known y.
    """
    known = [[(a, b) for a, b in zip(x, y, strict=True) if b is not None] for y in lines]
    if not any(known):
        return []
    top = max(b for points in known for _, b in points) or 1.0
    beside = {0: show(top), (height - 1) // 2: show(top / 2), height - 1: show(0)}
    margin = max(map(len, beside.values()))
    room = max(width - margin - 2, 10)
    grid = [[" "] * room for _ in range(height)]

    def column(place: float) -> int:
        return round(place * (room - 1))

    def row(value: float) -> int:
        return height - 1 - round(value / top * (height - 1))

    for mark in marks:
        for line in grid:
            line[column(mark)] = MARK
    for points in known:
        _trace(grid, [(column(a), b) for a, b in points], row)
    for points, dot in reversed(list(zip(known, itertools.cycle(DOTS)))):
        for a, b in points:
            grid[row(b)][column(a)] = dot
    body = [f"{beside.get(i, ''):>{margin}} │{''.join(line)}" for i, line in enumerate(grid)]
    return [line.rstrip() for line in [*body, *_axis(labels, column, margin, room)]]


def _trace(
    grid: list[list[str]], points: Sequence[tuple[int, float]], row: Callable[[float], int]
) -> None:
    for (left, before), (right, after) in itertools.pairwise(points):
        for at in range(left + 1, right):
            share = (at - left) / (right - left)
            grid[row(before + share * (after - before))][at] = TRACE


def _axis(
    labels: Sequence[tuple[float, str]], column: Callable[[float], int], margin: int, room: int
) -> list[str]:
    """The line under a curve, and those labels that find room."""
    text = [" "] * (room + 8)
    free = 0
    for place, label in labels:
        at = column(place)
        if at >= free:
            text[at : at + len(label)] = label
            free = at + len(label) + 1
    return [f"{'':>{margin}} └{'─' * room}", f"{'':>{margin}}  {''.join(text)}"]


def stacked(parts: Sequence[tuple[str, float]], width: int) -> list[str]:
    """Shares of a whole as one bar, and a legend of the parts that can be seen."""
    ends, sum_ = [0], 0.0
    for _, share in parts:
        sum_ += share
        ends.append(round(min(sum_, 1.0) * width))
    bar = "".join(SHADES[i % len(SHADES)] * (ends[i + 1] - ends[i]) for i in range(len(parts)))
    legend, lines = "", [bar]
    for i, (name, share) in enumerate(parts):
        if share < 0.005:
            continue
        entry = f"{SHADES[i % len(SHADES)]} {name} {share:.0%}"
        if legend and len(legend) + len(entry) + 2 > width:
            lines.append(legend)
            legend = ""
        legend += ("  " if legend else "") + entry
    return [*lines, legend]
