"""What a course says, by the hour: latencies, what was answered and how well, and how long the
fleet could not keep up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.observing.meters import SERVED
from engine.simulated.fleet import Outcome
from playbooks.forecast.course import Course, Tick
from playbooks.load.slo import Slo

LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms")
STANDS_S = 30.0
"""A fleet that needs so long for what waits cannot keep up: it saturates."""
GONE_S = 3.0
"""It has recovered when it needs less than that, and was about to saturate from there on."""
ANSWERED = frozenset(reason.value for reason in SERVED)
Samples = dict[str, np.ndarray]


class Saturation(NamedTuple):
    from_s: float
    until_s: float | None
    """None: it lasts beyond the period's end."""
    worst_delay_s: float | None
    """The longest that the fleet needed for what waited; None: there was no replica."""


@dataclass(frozen=True)
class HourFigures:
    """One hour of one course. Shares are of the requests that arrived in it."""

    offered: float
    samples: Samples
    answered: float | None
    """Share; None: nobody asked, or nobody was looked at."""
    good: float | None
    """Share that was answered within the objective."""
    output_tok_s: float | None
    requests_s: float
    """Ended."""
    preemptions: float | None
    """For each request."""
    replicas: float
    replica_hours: float
    """With those that start."""
    waiting: float
    """Most at once."""
    kv: float | None
    """Most at once, a share of the pages."""


@dataclass(frozen=True)
class CourseFigures:
    hours: list[HourFigures]
    saturations: list[Saturation]
    rejected: int
    """Requests that no replica can ever serve: too long."""


def figures_of(course: Course, slo: Slo) -> CourseFigures:
    hours = len(course.offered)
    outcomes: list[list[Outcome]] = [[] for _ in range(hours)]
    for outcome in course.outcomes:
        if 0 <= outcome.at_s < course.seconds:
            outcomes[int(outcome.at_s // 3600)].append(outcome)
    ticks: list[list[Tick]] = [[] for _ in range(hours)]
    for tick in course.ticks:
        ticks[min(int(tick.at_s // 3600), hours - 1)].append(tick)
    lengths = [min(course.seconds - hour * 3600.0, 3600.0) for hour in range(hours)]
    return CourseFigures(
        [
            _hour(outcomes[i], ticks[i], course.offered[i], course.lost[i], lengths[i], slo)
            for i in range(hours)
        ],
        saturations(course.ticks),
        sum(o.reason == "rejected" for o in course.outcomes),
    )


def _hour(
    outcomes: Sequence[Outcome], ticks: Sequence[Tick], offered: float, lost: float,
    seconds: float, slo: Slo,
) -> HourFigures:  # fmt: skip
    answered = [o for o in outcomes if o.reason in ANSWERED]
    kept = max(offered - lost, 0.0) / offered if offered else 0.0
    grown = ticks[-1].running + ticks[-1].waiting - ticks[0].running - ticks[0].waiting
    ended = max(offered - grown, 0.0) / seconds
    share = kept * len(answered) / len(outcomes) if outcomes else None
    tokens = sum(o.output_tokens for o in answered) / len(answered) if answered else 0.0
    alive = [tick.replicas + tick.starting for tick in ticks]
    return HourFigures(
        offered,
        {name: _values(answered, name) for name in LATENCIES},
        share,
        kept * good_share(outcomes, slo) if outcomes else None,
        None if share is None else ended * share * tokens,
        ended,
        sum(o.preemptions for o in outcomes) / len(outcomes) if outcomes else None,
        sum(tick.replicas for tick in ticks) / len(ticks),
        sum(alive) / len(alive) * seconds / 3600,
        max(tick.waiting for tick in ticks),
        max((tick.kv for tick in ticks if tick.kv is not None), default=None),
    )


def good_share(outcomes: Sequence[Outcome], slo: Slo) -> float:
    """Of these, one at least, the share that was answered within the objective."""
    return sum(o.reason in ANSWERED and slo.met(o) for o in outcomes) / len(outcomes)


def _values(outcomes: Sequence[Outcome], name: str) -> np.ndarray:
    values = (getattr(outcome, name) for outcome in outcomes)
    return np.array([v for v in values if v is not None], dtype=np.float32)


def saturations(ticks: Sequence[Tick]) -> list[Saturation]:
    """The spans in which the queue stood for STANDS_S at some time, from where it began to form."""
    found: list[Saturation] = []
    span: list[Tick] = []
    for tick in ticks:
        if tick.delay_s is None or tick.delay_s >= GONE_S:
            span.append(tick)
            continue
        found += _saturation(span, tick.at_s)
        span = []
    return found + _saturation(span, None)


def _saturation(span: Sequence[Tick], until_s: float | None) -> list[Saturation]:
    delays = [tick.delay_s for tick in span]
    known = [delay for delay in delays if delay is not None]
    if not span or (None not in delays and max(known) < STANDS_S):
        return []
    worst = None if None in delays else max(known)
    return [Saturation(span[0].at_s, until_s, worst)]
