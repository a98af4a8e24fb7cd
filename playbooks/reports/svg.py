"""Charts as inline SVG: no script, no font, nothing from elsewhere. Colours come from the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from playbooks.reports.document import Bars, Chart, Line
from playbooks.reports.text import html

WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 80, 20, 16, 40
MANY = 50
"""Points of a curve, above which their dots are small."""
PALETTE = (
    "#1f6feb", "#2da44e", "#bf8700", "#cf222e", "#8250df", "#0a7ea4", "#bc4c00", "#6e7781",
    "#a475f9", "#4ac26b",
)  # fmt: skip
Place = Callable[[float], float]


def chart_svg(chart: Chart) -> str:
    """y starts at zero."""
    known = [v for line in chart.lines for v in (*line.y, *line.high) if v is not None]
    top = max(known, default=1.0) * 1.08 or 1.0

    def x(value: float) -> float:
        return round(LEFT + chart.along(value) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM), 1)

    inside = [*_axes(chart, x, y, top)]
    for i, line in enumerate(chart.lines):
        colour = PALETTE[i % len(PALETTE)] if len(chart.lines) > 1 else None
        inside += _band(chart, line, x, y, colour)
        inside += _curve(chart, line, x, y, colour)
    inside += _legend(chart)
    for name, at in chart.marks:
        inside.append(
            f'<line class="mark" x1="{x(at)}" x2="{x(at)}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text class="note" x="{x(at) + 4}" y="{TOP + 10 + 14 * len(name) % 30}">'
            f"{html(chart.mark(name, at))}</text>"
        )
    return _svg(HEIGHT, chart.title, inside)


def stacked(drawings: Sequence[str], style: str) -> str:
    """A file of its own: the drawings one below the other, with their style."""
    heights = [int(re.search(r'height="(\d+)"', one)[1]) for one in drawings]  # type: ignore[index]
    tops = [sum(heights[:i]) for i in range(len(heights))]
    inside = [
        one.replace("<svg ", f'<svg y="{y}" ', 1) for one, y in zip(drawings, tops, strict=True)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {sum(heights)}">'
    return f"{head}<style>{style}</style>{''.join(inside)}</svg>\n"


def _svg(height: int, title: str, inside: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{html(title)}">{"".join(inside)}</svg>'
    )


def _axes(chart: Chart, x: Place, y: Place, top: float) -> Iterator[str]:
    for i in range(5):
        value = top / 1.08 * i / 4
        at = y(value)
        yield f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
        yield (
            f'<text class="faint" text-anchor="end" x="{LEFT - 8}" y="{at + 4}">'
            f"{html(chart.show(value))}</text>"
        )
    for value, label in chart.labels:
        yield (
            f'<text class="faint" text-anchor="middle" x="{x(value)}" y="{HEIGHT - BOTTOM + 18}">'
            f"{html(label)}</text>"
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield (
        f'<text class="faint" text-anchor="middle" x="{middle}" y="{HEIGHT - 6}">'
        f"{html(chart.x_label)}</text>"
    )


def _legend(chart: Chart) -> Iterator[str]:
    """Which colour is whose, where there are several curves."""
    left = LEFT + 8
    for i, line in enumerate(chart.lines if len(chart.lines) > 1 else ()):
        colour = PALETTE[i % len(PALETTE)]
        yield (
            f'<rect x="{left}" y="{TOP - 12}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{left + 14}" y="{TOP - 3}">{html(line.name)}</text>'
        )
        left += 30 + 7 * len(line.name)


def _band(chart: Chart, line: Line, x: Place, y: Place, colour: str | None) -> list[str]:
    """The interval around a curve."""
    rows = [
        (a, low, high)
        for a, low, high in zip(chart.x, line.low, line.high, strict=False)
        if low is not None and high is not None
    ]
    if len(rows) < 2:
        return []
    edge = [f"{x(a)},{y(high)}" for a, _, high in rows]
    edge += [f"{x(a)},{y(max(low, 0))}" for a, low, _ in reversed(rows)]
    own = "" if colour is None else f' style="fill:{colour};opacity:.2"'
    return [f'<polygon class="band"{own} points="{" ".join(edge)}"/>']


def _curve(chart: Chart, line: Line, x: Place, y: Place, colour: str | None) -> Iterator[str]:
    points = [(x(a), y(b), a, b) for a, b in zip(chart.x, line.y, strict=True) if b is not None]
    stroke, fill = ("", "") if colour is None else (
        f' style="stroke:{colour}"', f' style="fill:{colour}"'
    )  # fmt: skip
    path = " ".join(f"{a},{b}" for a, b, *_ in points)
    yield f'<polyline class="curve"{stroke} points="{path}"/>'
    names, radius = dict(chart.ticks), 3.5 if len(points) <= MANY else 2
    for left, up, at, value in points:
        place = names.get(at) or f"{chart.x_label} {at:g}"
        tip = html(f"{place}: {chart.show(value)}")
        yield (
            f'<circle class="dot"{fill} cx="{left}" cy="{up}" r="{radius:g}">'
            f"<title>{tip}</title></circle>"
        )


def bars_svg(bars: Bars) -> str:
    """One stacked bar, with a legend of the parts that can be seen."""
    inside, left, room = [], 0.0, WIDTH
    legend_x, legend_y = 0, 52
    for i, (name, share) in enumerate(bars.parts):
        colour, width = PALETTE[i % len(PALETTE)], share * room
        text = f"{name} {share:.1%}"
        inside.append(
            f'<rect x="{left:.1f}" y="18" width="{width:.1f}" height="20" fill="{colour}">'
            f"<title>{html(text)}</title></rect>"
        )
        left += width
        if share >= 0.005:
            wide = 24 + 7 * len(text)
            if legend_x + wide > WIDTH:
                legend_x, legend_y = 0, legend_y + 18
            inside.append(
                f'<rect x="{legend_x}" y="{legend_y - 9}" width="10" height="10" fill="{colour}"/>'
                f'<text x="{legend_x + 14}" y="{legend_y}">{html(text)}</text>'
            )
            legend_x += wide
    inside.insert(0, f'<text class="faint" x="0" y="12">{html(bars.title)}</text>')
    return _svg(legend_y + 10, bars.title, inside)
