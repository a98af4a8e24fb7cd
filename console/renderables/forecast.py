"""What a forecast looks like: its words, its hours as curves and as rows, what-ifs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from console.control.forecast_view import ForecastView, HourView, ScenarioView
from console.locale.lang import _
from console.renderables import format as fmt
from console.renderables.lines import (
    ALARM,
    BLANK,
    Line,
    Span,
    columns_line,
    fit,
    in_column,
    text_line,
    width_of,
)
from console.renderables.pages import table_lines, words
from console.renderables.strips import Band, Strip, strips
from playbooks.reports.document import Column, Table, duration, percent, rate, whole

MARKS = {
    "holds": Span("✓ holds", "good"),
    "fails": Span("✗ fails", "trouble"),
    "uncertain": Span("? uncertain", "trouble"),
}
LEAST_ROWS, MOST_ROWS = 2, 5
"""Of a curve."""
AXIS_ROWS = 2
HOW_TO = (
    "There is no forecast yet. It says, hour by hour, how much traffic comes, what the engines "
    "make of it and how many it takes, by the engine's own scheduler in virtual time.",
    "It needs what a step costs, once for an engine: evewatch forecast fit",
    "Then n makes one here, from a past of counts, a trace or a recording; so does evewatch "
    "forecast run --history FILE. The newest is shown; o opens the report of another.",
)


def verdict(scenario: ScenarioView) -> Span:
    return MARKS.get(scenario.verdict) or Span(scenario.verdict)


def how_to(width: int) -> list[Line]:
    lines: list[Line] = []
    for text in HOW_TO:
        lines += [*words(text, width), BLANK]
    return lines


def curves(view: ForecastView, place: int, chosen: int, width: int, height: int) -> list[Line]:
    """The words first, then the curves of a scenario in what is left of `height`."""
    hours = view.scenarios[place].hours
    shown = strips_of(view, view.scenarios[place])
    marked = [hour.saturated for hour in hours]
    under = AXIS_ROWS + any(marked)
    said = sentences(view, width)
    said = _cut(said, max(height - under - LEAST_ROWS * len(shown), 1), width)
    rows = (height - len(said) - under) // len(shown)
    rows = max(LEAST_ROWS, min(MOST_ROWS, rows))
    labels = [hour.label for hour in hours]
    return [*said, *strips(shown, labels, marked, chosen, width, rows)]


def sentences(view: ForecastView, width: int) -> list[Line]:
    return [line for text in view.sentences for line in words(text, width, "• ")]


def _cut(lines: list[Line], rows: int, width: int) -> list[Line]:
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], fit((*lines[rows - 1], Span(" … w: all of it", "faint")), width)]


def strips_of(view: ForecastView, scenario: ScenarioView) -> list[Strip]:
    """Expected rate, TTFT P99, replicas and KV use."""
    hours = scenario.hours
    limit = view.ttft_limit_ms
    there_are = max((h.replicas.value or 0.0 for h in hours), default=0.0)
    needed = [Band(hour.needed) for hour in hours]
    found = [
        Strip("requests/s", [h.rate for h in hours], fmt.decimal),
        Strip("TTFT P99", [h.ttft_ms for h in hours], fmt.millis, limit,
              "" if limit is None else f"objective {fmt.millis(limit)}"),
    ]  # fmt: skip
    if any(band.value is not None for band in needed):
        found.append(Strip("replicas needed", needed, fmt.count, there_are or None,
                           f"there are {scenario.replicas}"))  # fmt: skip
    else:
        found.append(Strip("replicas", [h.replicas for h in hours], fmt.decimal))
    return [*found, Strip("KV pages, most", [h.kv for h in hours], fmt.percent)]


# --- hours as rows -----------------------------------------------------------------------------

COLUMNS: tuple[tuple[str, int, Callable[[HourView], str]], ...] = (
    ("requests/s", 19, lambda h: interval(h.rate, fmt.decimal)),
    ("TTFT P99", 9, lambda h: fmt.millis(h.ttft_ms.value)),
    ("E2E P99", 9, lambda h: fmt.millis(h.e2e_ms.value)),
    ("good", 7, lambda h: fmt.percent(h.good.value)),
    ("KV", 7, lambda h: fmt.percent(h.kv.value)),
    ("needed", 7, lambda h: fmt.count(h.needed)),
)
HOUR_WIDTH = 10


def hour_head(width: int) -> Line:
    names = [(name, room) for name, room, _ in COLUMNS]
    return columns_line([("hour", -HOUR_WIDTH - 2), *names])


def hour_row(hour: HourView, width: int) -> Line:
    figures = "".join(f"{show(hour):>{room}}" for _, room, show in COLUMNS)
    sign = Span(f"{ALARM if hour.words else ' ':<2}", "trouble")
    row: Line = (in_column(hour.label, -HOUR_WIDTH), sign, Span(figures))
    told: Line = (*row, Span(f"  {hour.words}", "trouble"))
    return told if hour.words and width_of(told) <= width else row


def interval(band: Band, show: Callable[[float | None], str]) -> str:
    """ "12.4 (10.1–14.2)"."""
    if band.value is None or band.low is None or band.high is None:
        return show(band.value)
    return f"{show(band.value)} ({show(band.low)}–{show(band.high)})"


# --- what-ifs ----------------------------------------------------------------------------------

TOTALS: tuple[tuple[str, Callable[[dict[str, Any]], Any], Callable[..., str]], ...] = (
    ("within the objective", lambda t: t["good"], percent),
    ("TTFT p50", lambda t: t["ttft_ms"]["p50"], duration),
    ("TTFT p99", lambda t: t["ttft_ms"]["p99"], duration),
    ("TPOT p99", lambda t: t["tpot_ms"]["p99"], duration),
    ("E2E p99", lambda t: t["e2e_ms"]["p99"], duration),
    ("tok/s", lambda t: t["output_tok_s"], whole),
    ("preemptions/request", lambda t: t["preemptions"], percent),
    ("KV pages, most", lambda t: t["kv"], percent),
    ("budget spent", lambda t: t["budget_spent"], percent),
    ("replica-hours", lambda t: t["replica_hours"], rate),
)


GAP = 2
"""Between columns of a table."""


def what_ifs(view: ForecastView, width: int) -> list[Line]:
    """All scenarios in columns, with their intervals where there is room; below, all that was
    said and assumed."""
    rows = _side_by_side(view, intervals=True)
    if sum(max(map(len, column)) + GAP for column in zip(*rows, strict=True)) > width:
        rows = _side_by_side(view, intervals=False)
    table = Table("", [Column(name) for name in rows[0]], rows[1:])
    lines = [*table_lines(table, width), BLANK, *sentences(view, width)]
    if view.notes:
        lines += [BLANK, text_line("assumed, or to be doubted", "label")]
        lines += [line for text in view.notes for line in words(text, width, "• ")]
    return lines


def _side_by_side(view: ForecastView, intervals: bool) -> list[list[str]]:
    """The head, and a row for each figure."""
    scenarios = view.scenarios
    return [
        ["", *(s.name for s in scenarios)],
        ["verdict", *(verdict(s).text for s in scenarios)],
        ["replicas", *(s.replicas for s in scenarios)],
        ["saturates", *(", ".join(s.saturations) or "never" for s in scenarios)],
        *(
            [name, *(_total(get(s.totals), show, intervals) for s in scenarios)]
            for name, get, show in TOTALS
        ),
    ]


def _total(block: dict[str, Any], show: Callable[..., str], with_interval: bool) -> str:
    value, low, high = block["value"], block["low"], block["high"]
    if not with_interval or value is None or low is None or low == high:
        return show(value)
    return f"{show(value)} ({show(low)}–{show(high)})"


def title(view: ForecastView, place: int) -> Sequence[Span]:
    scenario = view.scenarios[place]
    many = len(view.scenarios)
    head: Line = (Span(view.title, "title"),)
    if many > 1:
        which = f"{_(scenario.name)} {place + 1}/{many}"
        head = (*head, Span(" · "), Span(which, "operator"))
    return (*head, Span(" "), verdict(scenario))
