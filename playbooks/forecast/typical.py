"""A part for the whole: some of the replicas, and windows of each hour.

What is assumed, and `docs/forecast.md` says how far it holds:

- Replicas behind a router that looks at no prefix are alike. Of a fleet of n, m are simulated with
  m / n of the arrivals; when n changes, so does their share.
- Between two windows batches and caches stand still. How many requests the fleet has does not:
  those that arrive are counted one by one, and as many end as a replica's pace says. The next
  window begins with that number, the newest arrivals in its queue.
- Those whose turn comes in a window stand in for all that come (`stand_ins.py`).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import compress

import numpy as np

from engine.simulated.fleet import UNFINISHED, Fleet, Outcome
from engine.simulated.routers import ROUTERS
from playbooks.forecast.course import (
    DRAIN_S,
    TICK_S,
    Course,
    HeadCount,
    Operations,
    Scenario,
    Sender,
    Tick,
    World,
    hours_of,
    make_fleet,
    with_ticks,
)
from playbooks.forecast.newest import newest, under_way
from playbooks.forecast.pace import Pace
from playbooks.forecast.stand_ins import Moment, stand_ins
from playbooks.forecast.traffic import Arrival

NEWEST = 0.2
"""Of how fast replicas are, the part that the latest window says: it is a short one."""
HOUR_S = 3600.0


@dataclass(frozen=True)
class Sampling:
    """How much is simulated."""

    replicas: int
    window_s: float
    """Of each window, in which requests count."""
    warm_s: float
    """Before each of them."""
    windows: int = 1
    """Of each hour, evenly over it."""


def run_typical(
    scenario: Scenario,
    world: World,
    pace: Pace,
    sampling: Sampling,
    place: float = 0.5,
    only: int | None = None,
) -> Course:
    """`pace`: of a replica as fast as its fit. `place`: where in its part of the hour a window
    lies, from 0 (its beginning) to 1 (its end). `only`: of one hour, as if none had been before.
    """
    run = _Typical(scenario, world, pace.times(world.speed), sampling)
    length = sampling.warm_s + sampling.window_s
    hours = range(hours_of(world.traffic.seconds)) if only is None else [only]
    if only is not None:
        run.fleet.skip(only * HOUR_S)
    for hour in hours:
        part = min(HOUR_S, world.traffic.seconds - hour * HOUR_S) / sampling.windows
        for number in range(sampling.windows):
            begin = hour * HOUR_S + number * part
            window = begin + place * max(part - length, 0.0)
            run.pass_until(window)
            run.watch(window, min(window + length, begin + part))
    if only is None:
        run.pass_until(world.traffic.seconds)
    run.fleet.finish(DRAIN_S)
    return run.course()


class _Typical:
    def __init__(self, scenario: Scenario, world: World, pace: Pace, sampling: Sampling) -> None:
        self._traffic, self._sampling = world.traffic, sampling
        whole = ROUTERS[scenario.router]().keeps_prefixes
        self._some = scenario.replicas if whole else min(sampling.replicas, _fewest(scenario))
        self.fleet: Fleet = make_fleet(scenario, world, self._some)
        self._sender, self._operations = Sender(world.traffic), Operations(scenario)
        self._heads = HeadCount(scenario.replicas)
        self._pace = pace
        self._outstanding = 0.0
        """Requests that the whole fleet has."""
        self._due = 0.0
        """Of the next request, the part that has come for the simulated replicas."""
        self._windows: list[tuple[float, float]] = []
        """Spans in which requests count."""
        self._path: list[Moment] = []
        self._came = 0
        """Requests since the latest look."""
        self._sent = 0
        """To the simulated replicas."""
        self._random = random.Random(world.seed)
        hours = hours_of(self._traffic.seconds)
        self._course = Course(self._traffic.seconds, offered=[0.0] * hours, lost=[0.0] * hours)

    def course(self) -> Course:
        until = self._traffic.seconds + DRAIN_S
        self._course.outcomes = list(stand_ins(self._simulated(), self._path, until))
        return self._course

    def _simulated(self) -> list[Outcome]:
        """Those whose turn came in a window."""
        begun = [o for o in self.fleet.outcomes if o.queue_ms is not None or o.reason != UNFINISHED]
        turns = np.array([o.at_s + (o.queue_ms or 0.0) / 1e3 for o in begun])
        begins, ends = np.array(self._windows).T
        windows = np.searchsorted(begins, turns, "right") - 1
        return list(compress(begun, (windows >= 0) & (turns < ends[windows])))

    # --- between windows ------------------------------------------------------------------

    def pass_until(self, end_s: float) -> None:
        """Let the time until then pass: the fleet's size and its requests go on, batches do not."""
        begin = now = self.fleet.now_s
        if begin >= end_s:
            return
        each = math.ceil(TICK_S / self._pace.step_s)
        edges = edges_of(begin, end_s, TICK_S / each)
        came, _ = np.histogram(self._traffic.times(begin, end_s), edges)
        for i, until in enumerate(edges[1:].tolist(), 1):
            self._go_on(now, int(came[i - 1]), until - now)
            now = until
            if i % each == 0 or i == len(came):
                self._outstanding -= self._look(now, *self._split(), None)
        self.fleet.skip(now - begin)
        self._stand_in_line(now)

    def _offer(self, at_s: float, count: int) -> None:
        hours = self._course.offered
        hours[min(int(at_s // HOUR_S), len(hours) - 1)] += count
        self._came += count

    def _go_on(self, at_s: float, came: int, seconds: float) -> None:
        self._offer(at_s, came)
        taking = self._heads.taking()
        if not taking:
            self._lose(at_s, came)
            return
        each = self._pace.left(self._outstanding / taking, came / taking, seconds)
        ended = self._outstanding + came - taking * each
        chance = self._random.gauss(0.0, math.sqrt(self._pace.chance * max(ended, 0.0)))
        self._outstanding = max(taking * each + chance, 0.0)

    def _split(self) -> tuple[float, float]:
        """Requests of the fleet that run, and that wait."""
        running = min(self._outstanding, self._pace.full * self._heads.taking())
        return running, self._outstanding - running

    def _stand_in_line(self, now_s: float) -> None:
        """The simulated replicas get as many requests as they would have by now: those in their
        batches, some more or less of them, and the newest arrivals."""
        fleet, taking = self.fleet, self._heads.taking()
        fleet.drop_waiting()
        if not taking:
            return
        running, waiting = self._split()
        have, due = fleet.load().running, running * self._some / taking
        if have > due:
            fleet.drop_running(1 - due / have)
        for arrival in under_way(self._traffic, now_s, round(due - have), self._random):
            self._sender.send(fleet, arrival)
        for arrival in newest(self._traffic, now_s, int(waiting)):
            self._send(arrival)

    # --- windows --------------------------------------------------------------------------

    def watch(self, begin_s: float, end_s: float) -> None:
        """Simulate that time."""
        fleet, counted = self.fleet, min(begin_s + self._sampling.warm_s, end_s)
        self._windows.append((counted, end_s))
        self._live(begin_s, counted)
        before = len(fleet.outcomes)
        expected = self._live(counted, end_s)
        load = fleet.load()
        self._outstanding = (load.running + load.waiting) * self._heads.taking() / self._some
        served = len(fleet.outcomes) - before
        if served and expected >= 1:
            self._pace = self._pace.times((served / expected) ** NEWEST)

    def _live(self, begin_s: float, end_s: float) -> float:
        """So many requests end in that time, by the pace, from look to look."""
        have, now, sent, expected = self._have(), begin_s, self._sent, 0.0
        for moment in with_ticks(self._traffic.arrivals(begin_s, end_s), begin_s, end_s):
            if isinstance(moment, Arrival):
                self._offer(moment.at_s, 1)
                self._send(moment)
                continue
            self.fleet.run_until(moment)
            expected += self._ends(have, self._sent - sent, moment - now)
            self._look_at_fleet(moment)
            have, now, sent = self._have(), moment, self._sent
        self.fleet.run_until(end_s)
        return expected + self._ends(have, self._sent - sent, end_s - now)

    def _have(self) -> int:
        load = self.fleet.load()
        return load.running + load.waiting

    def _ends(self, have: float, came: float, seconds: float) -> float:
        """By the pace, of the simulated replicas' requests."""
        return self._some * self._pace.ends(have / self._some, came / self._some, seconds)

    def _look_at_fleet(self, at_s: float) -> None:
        seen, taking = self.fleet.load(), self._heads.taking()
        times = taking / self._some
        self._look(at_s, seen.running * times, seen.waiting * times, seen.kv)
        if self._heads.taking() > taking > 0:  # the new ones take their part of what waits
            self.fleet.drop_waiting(1 - taking / self._heads.taking())

    def _send(self, arrival: Arrival) -> None:
        """To the simulated replicas, if it is one of their share."""
        taking = self._heads.taking()
        if not taking:
            self._lose(arrival.at_s, 1)
            return
        self._due += self._some / taking
        if self._due >= 1:
            self._due -= 1
            self._sent += 1
            self._sender.send(self.fleet, arrival)

    # --- both -----------------------------------------------------------------------------

    def _look(self, now_s: float, running: float, waiting: float, kv: float | None) -> float:
        """How many of the fleet's requests are lost with their replicas."""
        heads = self._heads
        heads.now_s = now_s
        taking = heads.taking()
        lost = self._operations.look(now_s, heads, running + waiting, taking + heads.starting())
        gone = (running + waiting) * min(lost / taking, 1.0) if taking else 0.0
        self._lose(now_s, gone)
        taking = heads.taking()
        able = taking * self._pace.able
        delay = waiting / able if able else None
        if able:
            # Of a window, too, as if nobody waited while another replica has room: alike are alike.
            batches = (running + waiting) / (taking * self._pace.full)
            queue = max(batches - 1, 0.0) * self._pace.full / self._pace.able
            self._path.append(Moment(now_s, self._came, batches, queue))
        self._came = 0
        self._course.ticks.append(
            Tick(now_s, taking, heads.starting(), running, waiting, kv, delay)
        )
        return gone

    def _lose(self, at_s: float, count: float) -> None:
        hours = self._course.lost
        hours[min(int(at_s // HOUR_S), len(hours) - 1)] += count


def edges_of(begin_s: float, end_s: float, step_s: float) -> np.ndarray:
    """float: from the begin to the end, each above the one before, and the last step no longer."""
    steps = max(math.ceil((end_s - begin_s) / step_s - 1e-6), 1)
    return np.append(begin_s + step_s * np.arange(steps), end_s)


def _fewest(scenario: Scenario) -> int:
    """Replicas that always take requests, one at least."""
    fewest = scenario.replicas if scenario.scaling is None else scenario.scaling.least
    return max(min(fewest, scenario.replicas) - sum(loss.count for loss in scenario.losses), 1)
