"""Which replica of a group stands out, and by what numbers.

A replica is odd in a number when it lies far above the others: more than 3.5 of their robust
standard deviations (1.4826 × the median absolute deviation: Iglewicz and Hoaglin's limit for the
modified z-score), and by at least 70 % of their median, and by at least a floor below which a
difference does not matter. It is compared with the others alone, so that in a group of three it
cannot hide by moving the median; of two, the worse one is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from engine.snapshot import Snapshot

LIMIT = 3.5
RELATIVE = 0.7
TO_SIGMA = 1.4826


@dataclass(frozen=True)
class ReplicaMetric:
    name: str
    unit: str
    read: Callable[[Snapshot], float | None]
    floor: float
    """The least difference that matters."""
    low: bool = False
    """Odd is far below the others: a replica that gets no work."""


def _in_flight(snapshot: Snapshot) -> float | None:
    running, waiting = snapshot.batch.running, snapshot.queue.waiting
    return None if running is None or waiting is None else running + waiting


METRICS = (
    ReplicaMetric("queue", "", lambda s: s.queue.waiting, 4.0),
    ReplicaMetric("KV usage", "%", lambda s: _percent(s.kv.usage), 15.0),
    ReplicaMetric("TTFT p50", "ms", lambda s: s.latency.ttft_ms.p50, 100.0),
    ReplicaMetric("TPOT p50", "ms", lambda s: s.latency.tpot_ms.p50, 10.0),
    ReplicaMetric("requests inside", "", _in_flight, 4.0, low=True),
)


@dataclass(frozen=True)
class Oddity:
    """One number in which one replica stands out."""

    replica: str
    metric: str
    unit: str
    value: float
    low: float
    """The others' range."""
    high: float
    score: float
    """In limits: above 1 it is odd."""

    @property
    def text(self) -> str:
        others = _rounded(self.low)
        if _rounded(self.high) != others:
            others += f"–{_rounded(self.high)}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.metric} {_rounded(self.value)}{unit} (others {others}{unit})"


def odd_ones(snapshots: Mapping[str, Snapshot]) -> list[Oddity]:
    """The oddities of the replica that stands out most, the strongest first; [] of none."""
    found = [odd for metric in METRICS for odd in _odd_in(metric, snapshots)]
    if not found:
        return []
    worst = max(found, key=lambda odd: odd.score).replica
    return sorted((o for o in found if o.replica == worst), key=lambda o: -o.score)


def _odd_in(metric: ReplicaMetric, snapshots: Mapping[str, Snapshot]) -> list[Oddity]:
    read = {name: metric.read(snapshot) for name, snapshot in snapshots.items()}
    values = {name: value for name, value in read.items() if value is not None}
    found = []
    for name, value in values.items():
        others = [v for other, v in values.items() if other != name]
        score = _score(metric, value, others)
        if score > 1.0:
            found.append(
                Oddity(name, metric.name, metric.unit, value, min(others), max(others), score)
            )
    return found


def _score(metric: ReplicaMetric, value: float, others: Sequence[float]) -> float:
    if not others:
        return 0.0
    middle = median(others)
    spread = TO_SIGMA * median(abs(v - middle) for v in others)
    limit = max(LIMIT * spread, RELATIVE * abs(middle), metric.floor)
    away = middle - value if metric.low else value - middle
    return away / limit


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else ratio * 100


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == round(value) else f"{value:.1f}"
