"""A forecast's report as the console needs it: read once, checked once, then only drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from console.renderables.strips import Band
from engine.errors import ConfigError
from playbooks.reports import results

SCHEMA = 1
A_DAY_S = 90_000
"""Of a longer period an hour is named with its day: one of 25 hours is a day still."""


@dataclass(frozen=True)
class HourView:
    """One hour of one scenario."""

    at: datetime
    label: str
    rate: Band
    """Requests/s expected."""
    ttft_ms: Band
    """P99."""
    e2e_ms: Band
    """P99."""
    good: Band
    """Share within the objective."""
    kv: Band
    waiting: Band
    replicas: Band
    """That there are."""
    needed: int | None
    """The smallest number that holds the objective; None: not asked for, or there is none."""
    saturated: bool
    missed: bool
    """The objective."""

    @property
    def words(self) -> str:
        said = ["saturated"] * self.saturated + ["misses the objective"] * self.missed
        return ", ".join(said)


@dataclass(frozen=True)
class ScenarioView:
    name: str
    verdict: str
    """holds | fails | uncertain."""
    replicas: str
    hours: Sequence[HourView]
    totals: dict[str, Any]
    saturations: Sequence[str]
    """ "19:40–22:10", the days they are of counted."""


@dataclass(frozen=True)
class ForecastView:
    report: dict[str, Any]
    source: str
    """The file, or how else it came here."""
    title: str
    sentences: Sequence[str]
    notes: Sequence[str]
    """What was assumed, and what is doubtful."""
    ttft_limit_ms: float | None
    scenarios: Sequence[ScenarioView]


def view_of(report: Any, source: str) -> ForecastView:
    """Raises ConfigError for what is no report of a forecast."""
    if not isinstance(report, dict) or report.get("kind") != "forecast":
        raise ConfigError(f"{source}: is no report of a forecast (`evewatch forecast run --out`)")
    if report.get("schema") != SCHEMA:
        raise ConfigError(f"{source}: is a forecast's report of another version of EveWatch")
    try:
        return _view(report, source)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{source}: is damaged ({type(error).__name__}: {error})") from None


def read_view(path: Path) -> ForecastView:
    """Raises ConfigError."""
    try:
        return view_of(json.loads(path.read_text("utf-8")), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON ({error})") from None


def newest_view() -> ForecastView | None:
    """The forecast that was kept last, None if none was. Raises ConfigError."""
    report = next(results.saved("forecast"), None)
    return None if report is None else view_of(report, "the newest kept forecast")


def _view(report: dict[str, Any], source: str) -> ForecastView:
    start = datetime.fromisoformat(report["start"])
    title = f"Forecast {start:%a %d %b %H:%M}, {report['seconds'] / 3600:.4g} h"
    scenarios = [_scenario(report, scenario) for scenario in report["scenarios"]]
    if not scenarios or not scenarios[0].hours:
        raise ValueError("no hour in it")
    return ForecastView(
        report, source, title, [*report["sentences"]],
        [*report["warnings"], *report["assumptions"]],
        report["objective"]["slo"].get("ttft_ms"), scenarios,
    )  # fmt: skip


def _scenario(report: dict[str, Any], scenario: dict[str, Any]) -> ScenarioView:
    smallest = (report["smallest"] or {}).get("hours")
    spans = [_span(span) for span in scenario["saturations"]]
    target = report["objective"]["target"]
    hours = []
    for i, hour in enumerate(scenario["hours"]):
        at, came = datetime.fromisoformat(hour["at"]), report["traffic"]["hours"][i]
        begin, good = at.timestamp(), _band(hour["good"])
        hours.append(
            HourView(
                at,
                _label(report, at),
                Band(came["expected"], came["low"], came["high"]),
                _band(hour["ttft_ms"]["p99"]),
                _band(hour["e2e_ms"]["p99"]),
                good,
                _band(hour["kv"]),
                _band(hour["waiting"]),
                _band(hour["replicas"]),
                smallest[i] if smallest else None,
                any(first < begin + 3600 and begin < last for first, last in spans),
                good.value is not None and good.value < target,
            )
        )
    scaling, replicas = scenario["scaling"], str(scenario["replicas"])
    return ScenarioView(
        str(scenario["name"]),
        str(scenario["verdict"]),
        replicas if scaling is None else f"{scaling['least']}–{scaling['most']}",
        hours,
        scenario["totals"],
        [_span_words(report, span) for span in scenario["saturations"]],
    )


def _band(block: dict[str, Any]) -> Band:
    return Band(block["value"], block["low"], block["high"])


def _label(report: dict[str, Any], at: datetime) -> str:
    return f"{at:%H:%M}" if report["seconds"] <= A_DAY_S else f"{at:%a %H:%M}"


def _span(span: dict[str, Any]) -> tuple[float, float]:
    """Unix seconds."""
    until = span["until"]
    last = float("inf") if until is None else datetime.fromisoformat(until).timestamp()
    return datetime.fromisoformat(span["from"]).timestamp(), last


def _span_words(report: dict[str, Any], span: dict[str, Any]) -> str:
    ends = [None if at is None else _label(report, datetime.fromisoformat(at))
            for at in (span["from"], span["until"])]  # fmt: skip
    return f"{ends[0]}–{ends[1] or 'the end'} on {span['days']} of {report['days']} days"
