"""Latencies of a forecast beside those that a recording shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Any, NamedTuple

from playbooks.forecast.history.history import HOUR_S, LATENCIES, History


class Pair(NamedTuple):
    """Of one hour, in milliseconds."""

    said: dict[str, float | None]
    """Its "value", "low" and "high"."""
    came: float

    @property
    def off(self) -> float:
        return (self.said["value"] or 0.0) / self.came - 1

    @property
    def inside(self) -> bool:
        low, high = self.said["low"], self.said["high"]
        return low is not None and high is not None and low <= self.came <= high


def score_latencies(hours: Sequence[dict[str, Any]], history: History) -> list[dict[str, Any]]:
    """`hours`: of a scenario in a forecast's report. A row for each metric that both know: the
    median of how far its hours are off, as a share of what came, and how many were inside their
    interval."""
    found = []
    first = _begin(hours[0]) if hours else 0.0
    for name, quantile in LATENCIES:
        came = _by_hour(history, f"{name} {quantile}", first)
        pairs = [
            Pair(said, came[hour])
            for row in hours
            if (said := _said(row, name, quantile)) is not None
            and (hour := round((_begin(row) - first) / HOUR_S)) in came
        ]
        if pairs:
            found.append(
                {
                    "metric": f"{name} {quantile}",
                    "hours": len(pairs),
                    "error": median(abs(pair.off) for pair in pairs),
                    "bias": median(pair.off for pair in pairs),
                    "inside": sum(pair.inside for pair in pairs) / len(pairs),
                }
            )
    return found


def _said(row: dict[str, Any], name: str, quantile: str) -> dict[str, float | None] | None:
    block = row.get(name, {}).get(quantile)
    return None if not block or block.get("value") is None else block


def _begin(row: dict[str, Any]) -> float:
    return datetime.fromisoformat(row["at"]).timestamp()


def _by_hour(history: History, metric: str, first: float) -> dict[int, float]:
    """The median of what was seen in each hour, counted from the one that begins at `first`."""
    seen: dict[int, list[float]] = {}
    begin = history.start.timestamp() + history.slot_s / 2 - first
    for slot, value in enumerate(history.latencies.get(metric, ())):
        if value:
            seen.setdefault(int((begin + slot * history.slot_s) // HOUR_S), []).append(value)
    return {hour: median(values) for hour, values in seen.items()}
