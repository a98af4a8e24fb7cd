"""The course of one plausible day: its requests through a fleet in virtual time, second by second.

`typical.py` does the same with a part of the fleet and a part of the time.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from engine.config import EngineConfig
from engine.simulated.clock import VirtualClock
from engine.simulated.fleet import Fleet, Outcome
from engine.simulated.replica import Replica
from engine.simulated.routers import ROUTERS
from engine.simulated.scaling import Autoscaler, Loss, Scaling
from playbooks.forecast.fit_file import Fit
from playbooks.forecast.traffic import Arrival, Traffic, prompt_ids

TICK_S = 15.0
"""Between looks at the fleet."""
DRAIN_S = 900.0
"""After the period, for what is still open."""


@dataclass(frozen=True)
class Scenario:
    """What serves: settings, how many of it, and what happens to them."""

    name: str
    fit: Fit
    config: EngineConfig
    """Settings that the fit is of."""
    replicas: int
    router: str = "least_outstanding"
    scaling: Scaling | None = None
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True)
class World:
    """One plausible course of the period: its traffic, and how far engines are off their fit."""

    traffic: Traffic
    speed: float = 1.0
    seed: int = 0


class Tick(NamedTuple):
    """The fleet at a moment."""

    at_s: float
    replicas: int
    """That take requests."""
    starting: int
    running: float
    waiting: float
    kv: float | None
    """Share of the pages that requests hold; None where nobody looked."""
    delay_s: float | None
    """How long the fleet needs for what waits; None without a replica."""


@dataclass
class Course:
    """What came of one world."""

    seconds: float
    ticks: list[Tick] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    offered: list[float] = field(default_factory=list)
    """Requests that arrived, by the hour."""
    lost: list[float] = field(default_factory=list)
    """Requests that no replica was there for, or that ended with theirs, and that are no outcome of
    their own, by the hour."""


class Crew(Protocol):
    """Replicas that come and go."""

    def grow(self, count: int, start_s: float = 0.0) -> None: ...
    def shrink(self, count: int) -> None: ...
    def lose(self, count: int) -> int: ...


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


class Operations:
    """What happens to a fleet's size: losses, those that come back, and the rule's moves."""

    def __init__(self, scenario: Scenario) -> None:
        self._losses = deque(sorted(scenario.losses, key=lambda loss: loss.at_s))
        self._back: list[tuple[float, int]] = []
        self._scaler = None if scenario.scaling is None else Autoscaler(scenario.scaling)
        self._next_s = 0.0

    def look(self, now_s: float, crew: Crew, outstanding: float, size: int) -> int:
        """Make it so. `size`: replicas, starting ones counted. How many were lost."""
        lost = 0
        while self._losses and self._losses[0].at_s <= now_s:
            loss = self._losses.popleft()
            gone = min(loss.count, size)
            crew.lose(gone)
            lost, size = lost + gone, size - gone
            if loss.back_after_s is not None:
                self._back.append((loss.at_s + loss.back_after_s, gone))
        for back in [b for b in self._back if b[0] <= now_s]:
            self._back.remove(back)
            crew.grow(back[1])
            size += back[1]
        if self._scaler is not None and now_s >= self._next_s:
            self._next_s = now_s + self._scaler.rule.every_s
            wanted = self._scaler.wanted(now_s, outstanding, size)
            if wanted > size:
                crew.grow(wanted - size, self._scaler.rule.start_s)
            elif wanted < size:
                crew.shrink(size - wanted)
        return lost


class Sender:
    """Turns arrivals into requests of a fleet, each with tokens of its own."""

    def __init__(self, traffic: Traffic) -> None:
        self._block_tokens, self._numbers = traffic.block_tokens, itertools.count()

    def send(self, fleet: Fleet, arrival: Arrival) -> None:
        prompt = prompt_ids(arrival, next(self._numbers), self._block_tokens)
        fleet.send(arrival.at_s, prompt, arrival.output_tokens, arrival.prefix)


def make_fleet(scenario: Scenario, world: World, size: int, unix: float = 0.0) -> Fleet:
    def make(number: int, clock: VirtualClock) -> Replica:
        seed = world.seed * 1000 + number
        return scenario.fit.replica(scenario.config, seed=seed, speed=world.speed, clock=clock)

    router = ROUTERS[scenario.router]()
    return Fleet(make, router, size, world.traffic.block_tokens, scenario.fit.arrival_ns, unix)


def with_ticks(
    arrivals: Iterable[Arrival], begin_s: float, end_s: float, every_s: float = TICK_S
) -> Iterator[Arrival | float]:
    """The arrivals, and between them the seconds at which the fleet is looked at."""
    tick = -(-begin_s // every_s) * every_s
    for arrival in arrivals:
        while tick <= arrival.at_s:
            yield tick
            tick += every_s
        yield arrival
    while tick <= end_s:
        yield tick
        tick += every_s


def hours_of(seconds: float) -> int:
    return max(-int(-seconds // 3600), 1)


def run_whole(scenario: Scenario, world: World, able: float) -> Course:
    """Every request of the period. `able`: the capacity of a replica as fast as its fit."""
    traffic, sender = world.traffic, Sender(world.traffic)
    fleet, operations = make_fleet(scenario, world, scenario.replicas), Operations(scenario)
    hours = hours_of(traffic.seconds)
    course = Course(traffic.seconds, offered=[0.0] * hours, lost=[0.0] * hours)

    def tick(at_s: float) -> None:
        fleet.run_until(at_s)
        load = fleet.load()
        size = load.taking + load.starting
        operations.look(at_s, fleet, load.running + load.waiting, size)
        load = fleet.load()
        rate = load.taking * able * world.speed
        delay = load.waiting / rate if rate else None
        course.ticks.append(Tick(at_s, *load, delay))

    for moment in with_ticks(traffic.arrivals(0.0, traffic.seconds), 0.0, traffic.seconds):
        if isinstance(moment, Arrival):
            sender.send(fleet, moment)
            course.offered[int(moment.at_s // 3600)] += 1
        else:
            tick(moment)
    fleet.finish(DRAIN_S)
    course.outcomes = fleet.outcomes
    return course
