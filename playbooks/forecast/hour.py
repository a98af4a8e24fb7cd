"""One hour of a forecast as it would look: Snapshots of a replica, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from engine.observing.machine import MachineState
from engine.snapshot import Snapshot, Source, SourceState
from playbooks.forecast.asked_traffic import ReadHistory
from playbooks.forecast.course import Operations, Scenario, Sender, World, make_fleet, with_ticks
from playbooks.forecast.forecast import Forecast
from playbooks.forecast.traffic import Arrival

HOUR_S = 3600.0
WARM_S = 300.0
"""Before the hour, so that it does not begin with an empty batch."""
FRAME_S = 2.0
"""As graphs have it."""
FEW = 4
"""Replicas of a larger fleet that are simulated, with their part of the arrivals."""
Frame = tuple[float, Snapshot]
"""Seconds since the period's begin."""


def scenario_and_world(
    report: dict[str, Any], place: int, read: ReadHistory
) -> tuple[Scenario, World]:
    """A report's scenario under the traffic that is expected. Raises ConfigError where it does not
    say enough, or its files have gone or changed."""
    asked = Forecast.again(report, read)
    traffic = asked.outlook.expected(asked.step.seed)
    return asked.question.scenarios[place], World(traffic, seed=asked.step.seed)


def frames(
    scenario: Scenario,
    world: World,
    begin_s: float,
    since_s: float,
    tell: Callable[[float, float], object] = lambda done, total: None,
) -> Iterator[Frame]:
    """From `begin_s` on for an hour, what a replica of the fleet publishes. Simulated from
    `since_s` on, where a queue began to form, say, and some minutes before at least. `tell` is
    told how many seconds of how many are done."""
    traffic = world.traffic
    end = min(begin_s + HOUR_S, traffic.seconds)
    start = max(min(since_s, begin_s - WARM_S), 0.0)
    part = _part(scenario)
    begun = traffic.start.timestamp()
    fleet = make_fleet(part, world, part.replicas, begun + start)
    fleet.skip(start)
    sender, operations = Sender(traffic), Operations(part)
    share, due = part.replicas / scenario.replicas, 0.0
    for moment in with_ticks(traffic.arrivals(start, end), start, end, FRAME_S):
        if isinstance(moment, Arrival):
            due += share
            if due >= 1:
                due -= 1
                sender.send(fleet, moment)
            continue
        fleet.run_until(moment)
        seen = fleet.load()
        size = seen.taking + seen.starting
        operations.look(moment, fleet, seen.running + seen.waiting, size)
        tell(moment - start, end - start)
        if moment >= begin_s:
            yield moment, _snapshot(fleet.members, scenario, begun + moment)


def _part(scenario: Scenario) -> Scenario:
    """All of a small fleet, or of one that something happens to; else a few of them."""
    if scenario.scaling is not None or scenario.losses:
        return scenario
    return replace(scenario, replicas=min(scenario.replicas, FEW))


def _snapshot(members: Any, scenario: Scenario, unix: float) -> Snapshot:
    """Of the oldest replica there is."""
    name = "forecast" if scenario.replicas == 1 else f"forecast, 1 of {scenario.replicas} replicas"
    if not members:
        reason = "no replica is left"
        return Snapshot(
            time=unix,
            source=Source(SourceState.UNREACHABLE, engine="evewatch", target=name, reason=reason),
        )
    observer = members[0].replica.loop.observer
    observer.machine_state = MachineState
    observer.publish()
    return replace(observer.snapshot, time=unix, source=Source(engine="evewatch", target=name))
