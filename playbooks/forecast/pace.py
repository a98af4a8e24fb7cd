"""How fast one replica serves: measured once for each scenario, in virtual time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from statistics import fmean, pstdev
from typing import NamedTuple

from engine.errors import ConfigError
from engine.simulated.fleet import Outcome
from playbooks.forecast.course import TICK_S, Scenario, Sender, World, hours_of, make_fleet
from playbooks.forecast.traffic import Arrival, Traffic

FILL_BATCHES, FILL_LEAST = 10, 800
"""Full batches of requests, and requests at least, all there at once, that a replica's capacity is
measured with."""
ALONE, APART_S = 40, 1e5
"""Requests that come one after another has ended, and how far apart they come."""


LEAST_STEP_S = 0.5


class Pace(NamedTuple):
    able: float
    """Requests/s of a replica that always has more to do."""
    full: float
    """Of them that then run at once, the mean."""
    alone_s: float
    """That a request takes where no other runs."""
    chance: float = 0.0
    """Variance over mean of how many end in a time: they are not equally long."""

    def times(self, speed: float) -> Pace:
        """Of an engine that is so much faster."""
        return self._replace(able=self.able * speed, alone_s=self.alone_s / speed)

    @property
    def step_s(self) -> float:
        """A burst is over sooner than in longer steps."""
        return min(max(self.alone_s / 2, LEAST_STEP_S), TICK_S)

    def ends(self, outstanding: float, came: float, seconds: float) -> float:
        """Of so many requests, and those that come evenly meanwhile, how many have ended after
        that time, step by step."""
        steps, left = math.ceil(seconds / self.step_s), outstanding
        for _ in range(steps):
            left = self.left(left, came / steps, seconds / steps)
        return outstanding + came - left if steps else 0.0

    def left(self, outstanding: float, came: float, seconds: float) -> float:
        """Of so many requests, and those that come evenly meanwhile, how many have not ended
        after that time. More of them at once take longer each, in proportion."""
        crowded = min(max(outstanding + came / 2 - 1, 0.0) / max(self.full - 1, 1e-9), 1.0)
        each = self.alone_s + crowded * max(self.full / self.able - self.alone_s, 0.0)
        kept = math.exp(-seconds / each)
        left = outstanding * kept + came * each / seconds * (1 - kept)
        return max(left, outstanding + came - self.able * seconds)


def pace_of(scenario: Scenario, traffic: Traffic) -> Pace:
    """Of one replica, as fast as its fit, with requests of the busiest hour. Raises ConfigError
    where there are too few of them."""
    hours = range(hours_of(traffic.seconds))
    busiest = max(hours, key=lambda hour: traffic.rate((hour + 0.5) * 3600)) * 3600.0
    count = max(FILL_BATCHES * scenario.config.max_batch, FILL_LEAST)
    arrivals = list(itertools.islice(traffic.arrivals(busiest, traffic.seconds), count))
    served = _served(scenario, traffic, (one._replace(at_s=0.0) for one in arrivals))
    first, last = len(served) // 5, len(served) * 4 // 5
    if last <= first or _end_s(served[last]) <= _end_s(served[first]):
        raise ConfigError(
            f"{len(served)} requests of the busiest hour can be served: too few to say what a "
            "replica can do; give more traffic, or shorter requests"
        )
    able = (last - first) / (_end_s(served[last]) - _end_s(served[first]))
    alone = _served(
        scenario, traffic,
        (one._replace(at_s=i * APART_S) for i, one in enumerate(arrivals[:ALONE])),
    )  # fmt: skip
    ran = [_ran_s(one) for one in served[first:last]]
    chance = (pstdev(ran) / fmean(ran)) ** 2
    return Pace(able, max(able * fmean(ran), 1.0), fmean(map(_ran_s, alone)), chance)


def _served(scenario: Scenario, traffic: Traffic, arrivals: Iterable[Arrival]) -> list[Outcome]:
    """By one replica, in the order in which they ended."""
    fleet, sender = make_fleet(scenario, World(traffic), 1), Sender(traffic)
    for arrival in arrivals:
        sender.send(fleet, arrival)
    fleet.finish(1e7)
    return sorted((o for o in fleet.outcomes if o.e2e_ms is not None), key=_end_s)


def _end_s(outcome: Outcome) -> float:
    return outcome.at_s + (outcome.e2e_ms or 0.0) / 1e3


def _ran_s(outcome: Outcome) -> float:
    return ((outcome.e2e_ms or 0.0) - (outcome.queue_ms or 0.0)) / 1e3
