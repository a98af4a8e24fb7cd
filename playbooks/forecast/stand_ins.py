"""Requests that were simulated stand in for those that came between the windows.

Of each request it is known how many others the fleet had when it came, and how long it would need
for those that waited. Who was simulated at such a time, in an hour near that one, says what it had
to expect; where their queues differ, it waits so much longer or less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from engine.simulated.fleet import UNFINISHED, Outcome

HOUR_S = 3600.0
NEAR_HOURS = 2
HOUR = 0.1
"""Of a full batch: an hour apart is as unlike as so many more or fewer requests."""


class Moment(NamedTuple):
    """The end of a short time."""

    at_s: float
    came: int
    """Requests, in that time."""
    batches: float
    """Requests that a replica has, those that wait counted, over those that run in a full batch."""
    delay_s: float
    """That the fleet needs for those that wait."""


def stand_ins(
    simulated: Sequence[Outcome], path: Sequence[Moment], until_s: float
) -> Iterator[Outcome]:
    """As many requests as were simulated, evenly from all that came. `until_s`: who would get
    nothing by then does not end."""
    if not simulated or not path:
        return
    told = _Simulated(simulated, path)
    share, due = len(simulated) / max(sum(moment.came for moment in path), 1), 0.0
    for hour, moments in groupby(path, lambda moment: _hour(moment.at_s)):
        near = told.near(hour)
        for moment in moments:
            due += moment.came * share
            count, due = int(due), due % 1
            for outcome in told.most_like(moment, near, count):
                yield _unfinished(outcome) if _ends_after(outcome, until_s) else outcome


class _Simulated:
    """Outcomes, with the moment at which each came."""

    def __init__(self, outcomes: Sequence[Outcome], path: Sequence[Moment]) -> None:
        self._outcomes = outcomes
        times = [moment.at_s for moment in path]
        places = np.searchsorted(times, [outcome.at_s for outcome in outcomes])
        came = [path[min(place, len(path) - 1)] for place in places.tolist()]
        self._hours = np.array([_hour(moment.at_s) for moment in came])
        self._batches = np.array([moment.batches for moment in came])
        self._delays = np.array([moment.delay_s for moment in came])

    def near(self, hour: int) -> np.ndarray:
        """int: places of those of nearly that hour; of the nearest hour that has any."""
        apart = np.abs(self._hours - hour)
        return np.flatnonzero(apart <= max(NEAR_HOURS, int(apart.min())))

    def most_like(self, moment: Moment, near: np.ndarray, count: int) -> Iterator[Outcome]:
        while count > 0:
            unlike = np.abs(self._batches[near] - moment.batches)
            unlike += HOUR * np.abs(self._hours[near] - _hour(moment.at_s))
            some = min(count, len(near))
            for place in near[np.argpartition(unlike, some - 1)[:some]].tolist():
                late_ms = (moment.delay_s - self._delays[place]) * 1e3
                yield _moved(self._outcomes[place], moment.at_s, late_ms)
            count -= some


def _moved(outcome: Outcome, at_s: float, late_ms: float) -> Outcome:
    """At another time, with a longer queue."""
    if outcome.queue_ms is None:
        return outcome._replace(at_s=at_s)
    late_ms = max(late_ms, -outcome.queue_ms)
    ttft, e2e = outcome.ttft_ms, outcome.e2e_ms
    return outcome._replace(
        at_s=at_s,
        queue_ms=outcome.queue_ms + late_ms,
        ttft_ms=None if ttft is None else ttft + late_ms,
        e2e_ms=None if e2e is None else e2e + late_ms,
    )


def _ends_after(outcome: Outcome, moment_s: float) -> bool:
    return outcome.at_s + (outcome.e2e_ms or 0.0) / 1e3 > moment_s


def _unfinished(outcome: Outcome) -> Outcome:
    return Outcome(outcome.at_s, UNFINISHED, prompt_tokens=outcome.prompt_tokens)


def _hour(at_s: float) -> int:
    """Of the time that ends then."""
    return max(int(-(-at_s // HOUR_S)) - 1, 0)
