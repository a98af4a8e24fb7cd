"""The smallest fleet that holds the objective, hour by hour.

Each hour is taken from the plausible day that is busier then than nine of ten, by itself: as if
the hour before had been served by a fleet that held it, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from playbooks.forecast.course import Scenario, World
from playbooks.forecast.figures import good_share, saturations
from playbooks.forecast.pace import Pace
from playbooks.forecast.typical import Sampling, run_typical
from playbooks.load.slo import Slo

BUSY = 0.9
"""Of the days, so many are less busy."""
MOST = 512
"""Replicas; an objective that needs more is not one for this engine."""
LEAST_REQUESTS, LEAST_S, MOST_S = 400, 60.0, 600.0
"""A trial has so many requests, if that needs no longer."""
PART = 4
"""Replicas of a trial."""
PEAK_S = 300.0


@dataclass(frozen=True)
class Smallest:
    """None: no number of replicas holds it."""

    hours: list[int | None]

    @property
    def whole(self) -> int | None:
        """For all of the period."""
        return None if None in self.hours else max(h for h in self.hours if h is not None)

    @property
    def replica_hours(self) -> float | None:
        """With as many in each hour as that hour needs."""
        return None if None in self.hours else float(sum(h for h in self.hours if h is not None))


class Search:
    """The hours of one scenario; what one hour needed is where the next begins to look."""

    def __init__(
        self,
        scenario: Scenario,
        worlds: Sequence[World],
        pace: Pace,
        slo: Slo,
        target: float,
    ) -> None:
        self._pace, self._slo, self._target = pace, slo, target
        self._scenario = replace(scenario, scaling=None, losses=())
        self._worlds = worlds
        self._share = 0.8
        """Of a replica's capacity, what the latest hour's smallest fleet had."""

    def smallest(self, hour: int) -> int | None:
        world = self._busy(hour)
        able, rate = self._pace.able * world.speed, _peak(world, hour)
        if rate <= 0:
            return 1
        least = max(math.ceil(rate / able), 1)
        count = max(math.ceil(rate / able / self._share), least)
        if self._holds(world, hour, count):
            while count > least and self._holds(world, hour, count - 1):
                count -= 1
        else:
            found = self._above(world, hour, count)
            if found is None:
                return None
            count = found
        self._share = min(max(rate / able / count, 0.3), 1.0)
        return count

    def _above(self, world: World, hour: int, failed: int) -> int | None:
        """The first number above one that fails."""
        step = 1
        while not self._holds(world, hour, failed + step):
            failed, step = failed + step, 2 * step
            if failed > MOST:
                return None
        low, high = failed, failed + step
        while high - low > 1:
            middle = (low + high) // 2
            if self._holds(world, hour, middle):
                high = middle
            else:
                low = middle
        return high

    def _busy(self, hour: int) -> World:
        """By what its engines would have to do."""
        order = sorted(self._worlds, key=lambda world: _peak(world, hour) / world.speed)
        return order[min(math.ceil(BUSY * len(order)) - 1, len(order) - 1)]

    def _holds(self, world: World, hour: int, count: int) -> bool:
        part = min(count, PART)
        rate = _peak(world, hour) * part / count
        window = min(max(LEAST_REQUESTS / rate, LEAST_S), MOST_S)
        sampling = Sampling(part, window, window / 4)
        course = run_typical(
            replace(self._scenario, replicas=count), world, self._pace, sampling,
            only=hour,
        )  # fmt: skip
        if saturations(course.ticks) or not course.outcomes:
            return False
        return good_share(course.outcomes, self._slo) >= self._target


def _peak(world: World, hour: int) -> float:
    """Requests/s in the busiest minutes of the hour."""
    begin, end = hour * 3600.0, min((hour + 1) * 3600.0, world.traffic.seconds)
    steps = max(int((end - begin) // PEAK_S), 1)
    return max(world.traffic.rate(begin + i * PEAK_S) for i in range(steps))
