"""A part for the whole: some of the replicas, and a window of each hour.

What is assumed, and `docs/forecast.md` says how far it holds:

- Replicas behind a router that looks at no prefix are alike. Of a fleet of n, m are simulated with
  m / n of the arrivals; when n changes, so does their share.
- Between two windows batches and caches stand still. What waits does not: it grows by what
  arrives and shrinks by what the fleet can serve, second by second, and the next window begins
  with the newest arrivals of that number in its queue.
- What a replica can serve is measured when it always has more to do, at the busiest hour, and again
  in every window in which it always had.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass

import numpy as np

from engine.simulated.fleet import Fleet, Load
from engine.simulated.routers import ROUTERS
from playbooks.forecast.course import (
    DRAIN_S,
    TICK_S,
    Course,
    Operations,
    Scenario,
    Sender,
    Tick,
    World,
    hours_of,
    make_fleet,
    with_ticks,
)
from playbooks.forecast.traffic import Arrival

REMNANT_S = 10.0
"""A queue that the fleet needs so long for was left by too much traffic, and not by chance."""
NEWEST = 0.3
"""Of what a replica can serve, the part that the latest full window says: it is a short one."""
LOOKS = 100
CLEARED_S = 1.0
"""Less than that is no queue."""


@dataclass(frozen=True)
class Sampling:
    """How much is simulated."""

    replicas: int
    window_s: float
    """Of each hour, in which arrivals count."""
    warm_s: float
    """Before each of them."""


class HeadCount:
    """Replicas that come and go, as numbers alone."""

    def __init__(self, size: int) -> None:
        self.now_s = 0.0
        self._ready = [0.0] * size

    def taking(self) -> int:
        return sum(ready <= self.now_s for ready in self._ready)

    def starting(self) -> int:
        return len(self._ready) - self.taking()

    def grow(self, count: int, start_s: float = 0.0) -> None:
        self._ready += [self.now_s + start_s] * count

    def shrink(self, count: int) -> None:
        del self._ready[len(self._ready) - count :]

    def lose(self, count: int) -> int:
        del self._ready[:count]
        return count


def run_typical(
    scenario: Scenario,
    world: World,
    able: float,
    sampling: Sampling,
    place: float = 0.5,
    only: int | None = None,
) -> Course:
    """`able`: the capacity of a replica as fast as its fit. `place`: where in each hour its window
    lies, from 0 (its beginning) to 1 (its end). `only`: of one hour, as if none had been before.
    """
    run = _Typical(scenario, world, able * world.speed, sampling)
    length = sampling.warm_s + sampling.window_s
    hours = range(hours_of(world.traffic.seconds)) if only is None else [only]
    if only is not None:
        run.fleet.skip(only * 3600.0)
    for hour in hours:
        begin = hour * 3600.0
        room = min(3600.0, world.traffic.seconds - begin)
        window = begin + place * max(room - length, 0.0)
        run.pass_until(window)
        run.watch(window, min(window + length, begin + room))
    if only is None:
        run.pass_until(world.traffic.seconds)
    run.fleet.finish(DRAIN_S)
    return run.course()


class _Typical:
    def __init__(self, scenario: Scenario, world: World, able: float, sampling: Sampling) -> None:
        self._traffic, self._sampling = world.traffic, sampling
        whole = ROUTERS[scenario.router]().keeps_prefixes
        self._some = scenario.replicas if whole else min(sampling.replicas, _fewest(scenario))
        self.fleet: Fleet = make_fleet(scenario, world, self._some)
        self._sender, self._operations = Sender(world.traffic), Operations(scenario)
        self._heads = HeadCount(scenario.replicas)
        self._capacity = able
        self._seen = Load(self._some, 0, 0, 0, 0.0)
        """At the end of the latest window."""
        self._rate = 0.0
        """Requests/s in it."""
        self._full = 0.0
        """Most rows that a replica has had."""
        self._due = 0.0
        """Of the next request, the part that has come for the simulated replicas."""
        self._looked_s = 0.0
        self._deviations: deque[float] = deque(maxlen=LOOKS)
        """Of requests in the fleet from their mean, over its root: about the same at any load."""
        self._random = random.Random(world.seed)
        self._skipped: list[tuple[float, float]] = []
        """Spans in which arrivals do not count."""
        hours = hours_of(self._traffic.seconds)
        self._course = Course(self._traffic.seconds, offered=[0.0] * hours, lost=[0.0] * hours)

    def course(self) -> Course:
        inside = [o for o in self.fleet.outcomes if not self._is_skipped(o.at_s)]
        self._course.outcomes = inside
        for hour in range(len(self._course.offered)):
            moments = np.arange(hour * 3600.0, min((hour + 1) * 3600.0, self._traffic.seconds), 60)
            self._course.offered[hour] = 60 * sum(map(self._traffic.rate, moments.tolist()))
        return self._course

    def _is_skipped(self, at_s: float) -> bool:
        return any(begin <= at_s < end for begin, end in self._skipped)

    # --- between windows ------------------------------------------------------------------

    def pass_until(self, end_s: float) -> None:
        """Let the time until then pass: the fleet's size and its queue go on, batches do not."""
        heads, times = self._heads, self._heads.taking() / self._some
        seen, waiting = self._seen.running * times, self._seen.waiting * times
        left = waiting
        now = begin = self.fleet.now_s
        while now < end_s:
            step = min(TICK_S, end_s - now)
            able = heads.taking() * self._capacity
            waiting = max(waiting + (self._traffic.rate(now) - able) * step, 0.0) if able else 0.0
            now += step
            waiting *= 1 - self._look(now, self._running(now, seen, waiting), waiting, None)
        self.fleet.skip(now - begin)
        overload = waiting > CLEARED_S * heads.taking() * self._capacity
        if overload or left > REMNANT_S * heads.taking() * self._capacity:
            self.fleet.drop_waiting()
        if overload:
            self._queue_up(now, waiting)

    def _running(self, now_s: float, seen: float, waiting: float) -> float:
        """Rows of the fleet: all of them where requests wait, else as the rate has it.

        `seen`: at the end of the latest window.
        """
        full = self._full * self._heads.taking()
        if waiting > 0 or not self._rate:
            return full
        return min(seen * self._traffic.rate(now_s) / self._rate, full)

    def _queue_up(self, now_s: float, waiting: float) -> None:
        """The newest arrivals of that number wait."""
        since, count = now_s, 0.0
        while count < waiting and since > 0:
            since = max(since - TICK_S, 0.0)
            count += self._traffic.rate(since) * TICK_S
        for arrival in self._traffic.arrivals(since, now_s):
            self._send(arrival)

    def _look(self, now_s: float, running: float, waiting: float, kv: float | None) -> float:
        """The share of the requests in the fleet that is lost with their replicas."""
        heads = self._heads
        heads.now_s = now_s
        before, taking = running + waiting, heads.taking()
        by_chance = self._random.choice(self._deviations or [0.0]) if kv is None else 0.0
        outstanding = max(before + by_chance * math.sqrt(before), 0.0)
        lost = self._operations.look(now_s, heads, outstanding, taking + heads.starting())
        share = min(lost / taking, 1.0) if taking else 0.0
        gone = before * share
        if not taking:
            gone += self._traffic.rate(now_s) * (now_s - self._looked_s)
        self._looked_s = now_s
        self._course.lost[min(int(now_s // 3600), len(self._course.lost) - 1)] += gone
        able = heads.taking() * self._capacity
        delay = waiting / able if able else None
        self._course.ticks.append(
            Tick(now_s, heads.taking(), heads.starting(), running, waiting, kv, delay)
        )
        return share

    # --- windows --------------------------------------------------------------------------

    def watch(self, begin_s: float, end_s: float) -> None:
        """Simulate that time."""
        counted = min(begin_s + self._sampling.warm_s, end_s)
        self._skipped.append((begin_s, counted))
        fleet, busy, before = self.fleet, True, len(self.fleet.outcomes)
        outstanding: list[float] = []
        for moment in with_ticks(self._traffic.arrivals(begin_s, end_s), begin_s, end_s):
            if isinstance(moment, Arrival):
                self._send(moment)
                continue
            fleet.run_until(moment)
            seen = fleet.load()
            self._full = max(self._full, seen.running / self._some)
            taking = self._heads.taking()
            times = taking / self._some
            self._look(moment, seen.running * times, seen.waiting * times, seen.kv)
            if self._heads.taking() > taking > 0:  # the new ones take their part of what waits
                fleet.drop_waiting(1 - taking / self._heads.taking())
            if moment < counted:
                before = len(fleet.outcomes)
            else:
                busy = busy and seen.waiting >= self._some
                outstanding.append((seen.running + seen.waiting) * times)
        fleet.run_until(end_s)
        self._deviate(outstanding)
        self._seen, self._rate = fleet.load(), self._traffic.rate(begin_s)
        served = len(fleet.outcomes) - before
        if busy and end_s > counted and served:
            measured = served / self._some / (end_s - counted)
            self._capacity += NEWEST * (measured - self._capacity)

    def _deviate(self, outstanding: list[float]) -> None:
        """Learn how far looks lie from their mean: a rule of scaling sees looks."""
        mean = sum(outstanding) / max(len(outstanding), 1)
        if mean > 0:
            self._deviations += [(seen - mean) / math.sqrt(mean) for seen in outstanding]

    def _send(self, arrival: Arrival) -> None:
        """To the simulated replicas, if it is one of their share."""
        taking = self._heads.taking()
        if not taking:
            return  # it is lost, and counted as such
        self._due += self._some / taking
        if self._due >= 1:
            self._due -= 1
            self._sender.send(self.fleet, arrival)


def _fewest(scenario: Scenario) -> int:
    """Replicas that always take requests, one at least."""
    fewest = scenario.replicas if scenario.scaling is None else scenario.scaling.least
    return max(min(fewest, scenario.replicas) - sum(loss.count for loss in scenario.losses), 1)
