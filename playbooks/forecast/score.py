"""What a forecast is worth, once the days have come: beside what came, and beside two forecasts
that cost nothing: the last value that was known, and the same hour a week before."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from engine.errors import ConfigError
from playbooks.forecast.history.history import HOUR_S, History
from playbooks.forecast.score_latency import score_latencies
from playbooks.reports import results

METHODS = {
    "forecast": "expected",
    "last value": "last_value",
    "same hour last week": "last_week",
}
"""Each with the key of a forecast's hours that holds it."""
TRUSTED = (0.6, 0.95)
"""Shares of hours that an interval of 80 % may hold before its width is doubted."""
LEAST_HOURS = 24
"""From which that is looked at."""


@dataclass(frozen=True)
class Hour:
    """One that came: requests/s."""

    row: dict[str, Any]
    came: float

    def off(self, key: str) -> float | None:
        """How far that was off, in requests/s; None: it said nothing."""
        said = self.row[key]
        return None if said is None else said - self.came

    @property
    def inside(self) -> bool:
        return bool(self.row["low"] <= self.came <= self.row["high"])


def score(report: Any, history: History) -> dict[str, Any]:
    """`report`: of a forecast; `history`: what came. Raises ConfigError when it is no forecast of
    a history, or they have no hour in common."""
    traffic = forecast_in(report)
    came = history.hours(_begin(traffic["hours"][0]))
    known = [Hour(row, came.at(_middle(row))) for row in traffic["hours"]]
    hours = [hour for hour in known if not math.isnan(hour.came)]
    if not hours:
        raise ConfigError(_nothing_in_common(traffic, history))
    methods = [_method(name, hours, key) for name, key in METHODS.items()]
    coverage = sum(hour.inside for hour in hours) / len(hours)
    return {
        "schema": 1,
        "kind": "forecast_score",
        "file": history.name,
        "start": traffic["start"],
        "hours_scored": len(hours),
        "hours_forecast": len(known),
        "level": traffic["level"],
        "coverage": coverage,
        "methods": methods,
        "latencies": score_latencies(_scenario_hours(report), history),
        "warnings": _warnings(methods, coverage, len(hours), traffic["level"]),
        "assumptions": list(history.assumptions),
        "hours": [_row(hour) for hour in hours],
    }


def forecast_in(report: Any) -> dict[str, Any]:
    """The traffic of a forecast's report. Raises ConfigError when it holds none."""
    traffic: Any = report.get("traffic") if isinstance(report, dict) else None
    keys = {"start", "expected", "low", "high", *METHODS.values()}
    hours = traffic.get("hours") if isinstance(traffic, dict) else None
    if not hours or not all(isinstance(hour, dict) and keys <= hour.keys() for hour in hours):
        raise ConfigError("is no report of `evewatch forecast run --history`")
    return dict(traffic)


def _scenario_hours(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Of what there was, the first scenario."""
    scenarios = report.get("scenarios") or [{}]
    return list(scenarios[0].get("hours", ()))


def newest_overlapping(reports: Iterable[Any], history: History) -> Any:
    """Of kept reports, the newest first: the first that has an hour in common with what came, or
    None."""
    for report in reports:
        try:
            traffic = forecast_in(report)
        except ConfigError:
            continue
        came = history.hours(_begin(traffic["hours"][0]))
        if not all(math.isnan(came.at(_middle(row))) for row in traffic["hours"]):
            return report
    return None


def past_scores(reports: Iterable[Any], most: int = 5) -> list[dict[str, Any]]:
    """Of kept scores, the newest first: how right forecasts from here were."""
    keys = ("start", "hours_scored", "coverage", "level")
    scores = itertools.islice((r for r in reports if r.get("schema") == 1), most)
    return [
        {key: score[key] for key in keys} | {_key(m["name"]): m["error"] for m in score["methods"]}
        for score in scores
    ]


def kept_scores() -> list[dict[str, Any]]:
    """Of the forecasts that were made here and scored."""
    return past_scores(results.saved("forecast_score"))


def in_words(scores: Sequence[dict[str, Any]]) -> str:
    """Of past scores, one at least, in one sentence."""
    hours = sum(score["hours_scored"] for score in scores)
    inside = sum(score["coverage"] * score["hours_scored"] for score in scores) / hours
    off = []
    for name in METHODS:
        known = [score[_key(name)] for score in scores if score[_key(name)] is not None]
        off += [f"{name} {median(known):.1%}"] if known else []
    return (
        f"earlier forecasts of traffic made here ({len(scores)} scored) were off by: "
        f"{', '.join(off) or 'nothing came'}; {inside:.0%} of the hours lay in their "
        f"{scores[0]['level']:.0%} intervals"
    )


def _key(name: str) -> str:
    return name.replace(" ", "_")


def _begin(row: dict[str, Any]) -> float:
    return datetime.fromisoformat(row["start"]).timestamp()


def _middle(row: dict[str, Any]) -> float:
    return _begin(row) + HOUR_S / 2


def _method(name: str, hours: Sequence[Hour], key: str) -> dict[str, Any]:
    """`error`: of all requests, the share by which the hours are off (WAPE); `bias`: the share
    that was expected too many (+) or too few (−); `peak_error`: of the busiest hour."""
    pairs = [(hour, off) for hour in hours if (off := hour.off(key)) is not None]
    whole = sum(hour.came for hour, _ in pairs)
    peak = max(pairs, key=lambda pair: pair[0].came, default=None)

    def share(over: Callable[[float], float]) -> float | None:
        return sum(over(off) for _, off in pairs) / whole if whole else None

    return {
        "name": name,
        "hours": len(pairs),
        "error": share(abs),
        "bias": share(float),
        "peak_error": peak[1] / peak[0].came if peak is not None and peak[0].came else None,
    }


def _row(hour: Hour) -> dict[str, Any]:
    off = hour.off("expected")
    return hour.row | {
        "came": hour.came,
        "error": off / hour.came if off is not None and hour.came else None,
        "inside": hour.inside,
    }


def _warnings(
    methods: Sequence[dict[str, Any]], coverage: float, hours: int, level: float
) -> list[str]:
    found = []
    ours = methods[0]["error"]
    for naive in methods[1:]:
        error = naive["error"]
        if ours is not None and error is not None and naive["hours"] == hours and error < ours:
            found.append(
                f"the {naive['name']} would have been nearer: off by {error:.1%}, the forecast by "
                f"{ours:.1%}"
            )
    if hours >= LEAST_HOURS and not TRUSTED[0] <= coverage <= TRUSTED[1]:
        how = "narrow" if coverage < TRUSTED[0] else "wide"
        found.append(
            f"its intervals were too {how}: {coverage:.0%} of the hours lay in them, meant were "
            f"{level:.0%}"
        )
    return found


def _nothing_in_common(traffic: dict[str, Any], history: History) -> str:
    first = datetime.fromisoformat(traffic["start"])
    last = datetime.fromisoformat(traffic["hours"][-1]["start"]) + timedelta(hours=1)
    spans = [
        f"{begin.astimezone(UTC):%F %H:%M} to {until.astimezone(UTC):%F %H:%M}"
        for begin, until in ((first, last), (history.start, history.end))
    ]
    return (
        f"{history.name}: no hour of the forecast came in it: it holds {spans[1]} UTC, the "
        f"forecast is of {spans[0]} UTC"
    )
