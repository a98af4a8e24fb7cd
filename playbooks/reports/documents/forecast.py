"""The document of a forecast: the verdict in words, the hours as curves, what could be side by
side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from playbooks.reports.document import (
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Line,
    Show,
    Table,
    duration,
    percent,
    rate,
    whole,
)

Report = dict[str, Any]
BRIEF = 3
"""Charts that a terminal shows."""
TICKS = 12
"""Labels under a chart at most."""


def forecast_document(report: Report) -> Document:
    first = report["scenarios"][0]
    charts = _charts(report)
    return Document(
        "Forecast",
        [*report["sentences"], _period(report), _engine(first)],
        tables=[_side_by_side(report), _hours(report, first)],
        full=_every_hour(report),
        charts=charts[:BRIEF],
        more_charts=charts[BRIEF:],
        facts=[Facts("Assumed", [("", text) for text in report["assumptions"]])]
        if report["assumptions"]
        else [],
        warnings=report["warnings"],
        rows=[{"scenario": s["name"], **hour} for s in report["scenarios"] for hour in s["hours"]],
    )


def _period(report: Report) -> str:
    start = datetime.fromisoformat(report["start"])
    hours = report["seconds"] / 3600
    return (
        f"{start:%a %d %b %Y %H:%M}, {hours:.4g} h, {report['days']} plausible days, seed "
        + str(report["seed"])
    )


def _engine(scenario: Report) -> str:
    fit = scenario["fit"]
    named = ", ".join(str(fit[key]) for key in ("engine", "model", "format", "machine") if fit[key])
    return (
        f"{named}; one replica with more to do than it can ends "
        f"{scenario['capacity_requests_s']:.3g} requests/s"
    )


# --- tables -----------------------------------------------------------------------------------

Get = Callable[[Report], Any]


def _interval(block: Report, show: Show) -> str:
    """A value and where it lies on eight of ten days."""
    if block["value"] is None:
        return "–"
    if block["low"] is None or block["low"] == block["high"]:
        return show(block["value"])
    return f"{show(block['value'])} ({show(block['low'])} to {show(block['high'])})"


FIGURES: tuple[tuple[str, Get, Show], ...] = (
    ("requests", lambda h: h["offered"], whole),
    ("TTFT p50", lambda h: h["ttft_ms"]["p50"], duration),
    ("TTFT p90", lambda h: h["ttft_ms"]["p90"], duration),
    ("TTFT p99", lambda h: h["ttft_ms"]["p99"], duration),
    ("TPOT p50", lambda h: h["tpot_ms"]["p50"], duration),
    ("TPOT p99", lambda h: h["tpot_ms"]["p99"], duration),
    ("E2E p50", lambda h: h["e2e_ms"]["p50"], duration),
    ("E2E p90", lambda h: h["e2e_ms"]["p90"], duration),
    ("E2E p99", lambda h: h["e2e_ms"]["p99"], duration),
    ("within the objective", lambda h: h["good"], percent),
    ("answered", lambda h: h["answered"], percent),
    ("tok/s", lambda h: h["output_tok_s"], rate),
    ("preemptions/request", lambda h: h["preemptions"], percent),
    ("KV pages", lambda h: h["kv"], percent),
)
TOTALS: tuple[tuple[str, Get, Show], ...] = (
    ("budget spent", lambda t: t["budget_spent"], percent),
    ("replica-hours", lambda t: t["replica_hours"], rate),
)
HOURLY: tuple[tuple[str, Get, Show], ...] = (
    ("replicas", lambda h: h["replicas"], rate),
    ("waiting", lambda h: h["waiting"], whole),
)


def _side_by_side(report: Report) -> Table:
    scenarios = report["scenarios"]
    rows: list[list[Cell]] = [
        ["replicas", *(_replicas(s) for s in scenarios)],
        ["verdict", *(s["verdict"] for s in scenarios)],
    ]
    rows += [
        [name, *(_interval(get(s["totals"]), show) for s in scenarios)]
        for name, get, show in (*FIGURES, *TOTALS)
    ]
    return Table("In all", [Column(""), *(Column(s["name"]) for s in scenarios)], rows)


def _replicas(scenario: Report) -> str:
    scaling = scenario["scaling"]
    return str(scenario["replicas"]) if scaling is None else f"{scaling['least']}–{scaling['most']}"


def _hours(report: Report, scenario: Report) -> Table:
    smallest = (report["smallest"] or {}).get("hours")
    columns = [
        Column("hour"), Column("requests", whole, True), Column("TTFT p50", duration, True),
        Column("TTFT p99", duration, True), Column("TPOT p50", duration, True),
        Column("E2E p99", duration, True), Column("good", percent, True),
        Column("waiting", whole, True), Column("KV", percent, True),
        Column("replicas", rate, True), Column("smallest", whole, True),
    ]  # fmt: skip
    rows = [
        [
            _label(report, h["at"]), h["offered"]["value"], h["ttft_ms"]["p50"]["value"],
            h["ttft_ms"]["p99"]["value"], h["tpot_ms"]["p50"]["value"],
            h["e2e_ms"]["p99"]["value"], h["good"]["value"], h["waiting"]["value"],
            h["kv"]["value"], h["replicas"]["value"], smallest[i] if smallest else None,
        ]
        for i, h in enumerate(scenario["hours"])
    ]  # fmt: skip
    return Table("By the hour", columns, rows)


def _every_hour(report: Report) -> Table:
    """Every scenario, every hour, with its intervals."""
    figures = (*FIGURES, *HOURLY)
    columns = [Column("scenario"), Column("at")]
    for figure, _, show in figures:
        columns += [
            Column(figure, show, True), Column(f"{figure} low", show, True),
            Column(f"{figure} high", show, True),
        ]  # fmt: skip
    rows = [
        [s["name"], h["at"], *(get(h)[key] for _, get, _ in figures for key in KEYS)]
        for s in report["scenarios"]
        for h in s["hours"]
    ]
    return Table("Every hour with its intervals", columns, rows)


KEYS = ("value", "low", "high")


# --- charts -----------------------------------------------------------------------------------


def _charts(report: Report) -> list[Chart]:
    scenarios = report["scenarios"]
    x = [i + 0.5 for i in range(len(scenarios[0]["hours"]))]
    every = -(-len(x) // TICKS)
    ticks = [
        (x[i], _label(report, hour["at"]))
        for i, hour in enumerate(scenarios[0]["hours"])
        if i % every == 0
    ]
    marks = list(_marks(report, scenarios[0]))

    def chart(title: str, get: Get, show: Show, some: Sequence[Report] = scenarios) -> Chart:
        lines = [_line(s["name"], [get(h) for h in s["hours"]]) for s in some]
        return Chart(title, "hour", x, lines, show, marks, linear=True, ticks=ticks)

    offered = chart("requests that come", lambda h: h["offered"], whole, scenarios[:1])
    drawn = [
        offered,
        chart("TTFT p99", lambda h: h["ttft_ms"]["p99"], duration),
        chart("within the objective", lambda h: h["good"], percent),
        chart("E2E p99", lambda h: h["e2e_ms"]["p99"], duration),
        chart("most that wait", lambda h: h["waiting"], whole),
        chart("most KV pages", lambda h: h["kv"], percent),
        chart("replicas", lambda h: h["replicas"], rate),
    ]
    if len(x) < 2:
        return []
    return [one for one in drawn if any(v is not None for line in one.lines for v in line.y)]


def _line(name: str, blocks: Sequence[Report]) -> Line:
    return Line(name, *([block[key] for block in blocks] for key in KEYS))


def _marks(report: Report, scenario: Report) -> Iterator[tuple[str, float]]:
    start = datetime.fromisoformat(report["start"]).timestamp()
    most = report["seconds"] / 3600 - 0.5
    for span in scenario["saturations"]:
        for name, at in (("saturates", span["from"]), ("recovers", span["until"])):
            if at is not None:
                hours = (datetime.fromisoformat(at).timestamp() - start) / 3600
                yield f"{name} {_label(report, at)}", min(max(hours, 0.5), most)


def _label(report: Report, moment: str) -> str:
    at = datetime.fromisoformat(moment)
    return f"{at:%H:%M}" if report["seconds"] <= 90_000 else f"{at:%a %H:%M}"
