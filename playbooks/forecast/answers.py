"""From the courses of all plausible days to one answer, with how sure it is.

An interval is the middle 80 % of the days: each has its own traffic, and engines as far off their
fit as runs are. What a day does not say is None, and is no part of an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from engine.observing.telemetry import percentiles
from playbooks.forecast.figures import (
    LATENCIES,
    CourseFigures,
    HourFigures,
    Samples,
    Saturation,
)

INSIDE = 0.8
QUANTILES = ("p50", "p90", "p99")
HOLDS_ON, FAILS_ON = 0.9, 0.5
"""An answer holds if it does on so many of the days at least, and fails below the other share."""
GRID_S = 60.0
JOIN_S = 900.0
Answer = dict[str, float | None]


def interval(values: Iterable[float | None]) -> Answer:
    """{"value", "low", "high"}: median and the middle 80 % of what the days say."""
    known = [v for v in values if v is not None]
    if not known:
        return {"value": None, "low": None, "high": None}
    edges = ((1 - INSIDE) / 2, 0.5, (1 + INSIDE) / 2)
    low, middle, high = np.quantile(known, edges, method="weibull")
    return {"value": float(middle), "low": float(low), "high": float(high)}


def latency(days: Sequence[np.ndarray], weights: Sequence[np.ndarray] | None = None) -> Any:
    """Percentiles of a latency: of each day, or of all days' requests where a day has too few."""
    found = {}
    each = [_quantiles(d, None if weights is None else weights[i]) for i, d in enumerate(days)]
    together = _quantiles(
        np.concatenate(days), None if weights is None else np.concatenate(weights)
    )
    for i, name in enumerate(QUANTILES):
        told = interval(q[i] for q in each)
        if told["value"] is None:
            told["value"] = together[i]
        found[name] = told
    return found


def _quantiles(samples: np.ndarray, weights: np.ndarray | None) -> tuple[float | None, ...]:
    """P50, P90, P99; None where there are too few samples for it."""
    plain = percentiles(samples)
    if weights is None or plain.p50 is None:
        return plain.p50, plain.p90, plain.p99
    order = np.argsort(samples)
    reached, values = np.cumsum(weights[order]) / weights.sum(), samples[order]
    at = [float(values[min(int(np.searchsorted(reached, q)), len(values) - 1)])
          for q in (0.5, 0.9, 0.99)]  # fmt: skip
    known = (plain.p50, plain.p90, plain.p99)
    return tuple(None if p is None else v for p, v in zip(known, at, strict=True))


def hour_answers(days: Sequence[CourseFigures], start: datetime) -> list[dict[str, Any]]:
    return [
        {"at": _moment(start, i * 3600.0), **_figures([day.hours[i] for day in days])}
        for i in range(len(days[0].hours))
    ]


def _figures(hours: Sequence[HourFigures]) -> dict[str, Any]:
    def of(get: Callable[[HourFigures], float | None]) -> Answer:
        return interval(map(get, hours))

    return {
        "offered": of(lambda h: h.offered),
        **{name: latency([h.samples[name] for h in hours]) for name in LATENCIES},
        "answered": of(lambda h: h.answered),
        "good": of(lambda h: h.good),
        "output_tok_s": of(lambda h: h.output_tok_s),
        "requests_s": of(lambda h: h.requests_s),
        "preemptions": of(lambda h: h.preemptions),
        "replicas": of(lambda h: h.replicas),
        "waiting": of(lambda h: h.waiting),
        "kv": of(lambda h: h.kv),
    }


def totals(days: Sequence[CourseFigures], target: float) -> dict[str, Any]:
    """Of the whole period. A request of a window stands for those of its hour."""

    def of(get: Callable[[CourseFigures], float | None]) -> Answer:
        return interval(map(get, days))

    return {
        "offered": of(lambda d: sum(h.offered for h in d.hours)),
        **{name: latency(*_weighted(days, name)) for name in LATENCIES},
        "answered": of(lambda d: _mean(d, lambda h: h.answered)),
        "good": of(lambda d: good_share(d)),
        "budget_spent": of(lambda d: _spent(d, target)),
        "output_tok_s": of(lambda d: _flat([h.output_tok_s for h in d.hours])),
        "preemptions": of(lambda d: _mean(d, lambda h: h.preemptions)),
        "replica_hours": of(lambda d: sum(h.replica_hours for h in d.hours)),
        "kv": of(lambda d: max((h.kv for h in d.hours if h.kv is not None), default=None)),
    }


def _weighted(
    days: Sequence[CourseFigures], name: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    values, weights = [], []
    for day in days:
        values.append(np.concatenate([h.samples[name] for h in day.hours]))
        weights.append(np.concatenate([_weights(h.samples, name, h.offered) for h in day.hours]))
    return values, weights


def _weights(samples: Samples, name: str, offered: float) -> np.ndarray:
    count = len(samples[name])
    return np.full(count, offered / max(count, 1))


def good_share(day: CourseFigures) -> float | None:
    return _mean(day, lambda h: h.good)


def _mean(day: CourseFigures, get: Callable[[HourFigures], float | None]) -> float | None:
    """Of all requests of the hours that say it."""
    known = [(get(h), h.offered) for h in day.hours]
    told = [(value, weight) for value, weight in known if value is not None]
    weight = sum(w for _, w in told)
    return sum(v * w for v, w in told) / weight if weight else None


def _flat(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _spent(day: CourseFigures, target: float) -> float | None:
    """Of the requests that the objective lets miss it, the share that did: above 1 is too much."""
    good = good_share(day)
    return None if good is None else (1 - good) / (1 - target) if target < 1 else None


# --- verdict ------------------------------------------------------------------------------


def holds(day: CourseFigures, target: float) -> bool:
    """The objective, on that day: never where it saturates."""
    good = good_share(day)
    return not day.saturations and good is not None and good >= target


def verdict(days: Sequence[CourseFigures], target: float) -> tuple[str, int]:
    """holds | fails | uncertain, and on how many of the days it holds."""
    count = sum(holds(day, target) for day in days)
    quiet = not any(day.saturations for day in days)
    if quiet and count >= HOLDS_ON * len(days):
        return "holds", count
    return "fails" if count < FAILS_ON * len(days) else "uncertain", count


def saturation_answers(
    days: Sequence[CourseFigures], start: datetime, seconds: float
) -> list[dict[str, Any]]:
    """Spans in which some of the days saturate: from when to when for the most of those days."""
    grid = np.zeros(int(seconds // GRID_S) + 1, dtype=int)
    for day in days:
        for span in day.saturations:
            grid[_places(span, seconds)] += 1
    found = []
    for begin, end in _joined(_runs(grid > 0)):
        most = int(grid[begin:end].max())
        inside = np.flatnonzero(grid[begin:end] >= math.ceil(most / 2)) + begin
        first, last = int(inside[0]), int(inside[-1]) + 1
        delays = [
            span.worst_delay_s for day in days for span in day.saturations
            if span.from_s < end * GRID_S and (span.until_s or seconds) >= begin * GRID_S
        ]  # fmt: skip
        open_end = last >= len(grid)
        found.append(
            {
                "from": _moment(start, first * GRID_S),
                "until": None if open_end else _moment(start, last * GRID_S),
                "days": most,
                "worst_delay_s": interval(delays)["value"] if None not in delays else None,
            }
        )
    return found


def _places(span: Saturation, seconds: float) -> slice:
    until = seconds + GRID_S if span.until_s is None else span.until_s
    return slice(int(span.from_s // GRID_S), max(math.ceil(until / GRID_S), 1))


def _runs(marks: np.ndarray) -> Iterable[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marks.astype(np.int8), [0]])))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans with less than JOIN_S between them are one."""
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and (begin - found[-1][1]) * GRID_S < JOIN_S:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found


def _moment(start: datetime, seconds: float) -> str:
    """So long after the start, by its clocks: those may be changed meanwhile."""
    return datetime.fromtimestamp(start.timestamp() + seconds, start.tzinfo).isoformat()
