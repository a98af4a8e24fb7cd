"""Objectives of engines elsewhere: from their buckets, over restarts, and of a fleet together."""

from __future__ import annotations

import pytest

from engine.observing.objectives import Objective
from engine.remote.fleet.fleet import Fleet
from remote_stub import Server, page, with_value

PROMISED = (
    Objective("ttft", 0.99, 0.3),
    Objective("e2e", 0.9, 60.0),
    Objective("availability", 0.9),
)
BUSY = page("vllm/busy")


class Clock:
    now = 1_798_070_400.0

    def __call__(self) -> float:
        return self.now


def watched(name: str = "a", body: bytes = BUSY):
    server, clock = Server(body), Clock()
    engine = server.attach(
        f"http://{name}:8000",
        name=name,
        group="g",
        objectives=PROMISED,
        clock=clock,
        monotonic=clock,
    )
    engine.poll()
    return engine, server, clock


def bucket(body: bytes, name: str, bound: str) -> float:
    """A cumulative count, read off the page."""
    wanted = f"{name}_bucket{{".encode()
    lines = [x for x in body.split(b"\n") if x.startswith(wanted) and f'le="{bound}"'.encode() in x]
    return sum(float(line.rsplit(b" ", 1)[1]) for line in lines)


def test_counts_are_those_of_the_page():
    engine, _, _ = watched()
    ttft, e2e, served = engine.snapshot().objectives
    name = "vllm:time_to_first_token_seconds"
    low, high = bucket(BUSY, name, "0.25"), bucket(BUSY, name, "0.5")
    assert (ttft.above_ms, ttft.below_ms) == (250.0, 500.0)
    assert (ttft.good, ttft.unsure) == (low, high - low)
    assert ttft.total == bucket(BUSY, name, "+Inf")
    assert e2e.above_ms is None and e2e.unsure == 0  # vLLM has a bound at 60 s
    assert served.total > 0 and served.limit_ms is None


def test_counts_go_on_over_a_restart_and_say_that_they_are_of_several_lives():
    engine, server, clock = watched()
    before = engine.snapshot().objectives[0]
    assert before.since is not None
    server.pages["/metrics"] = with_value(BUSY, "process_start_time_seconds", "1798070390")
    clock.now += 30
    engine.poll()
    after = engine.snapshot().objectives[0]
    assert after.total == 2 * before.total and after.since is None


def test_an_engine_that_does_not_tell_has_no_such_count():
    server = Server(page("llamacpp/busy"))
    engine = server.attach(objectives=PROMISED)
    engine.poll()
    assert engine.snapshot().objectives == ()


def test_a_fleet_s_counts_are_sums():
    one, two = watched("a")[0], watched("b")[0]
    fleet = Fleet([one, two], PROMISED)
    (group,) = fleet.groups()
    for merged, single in zip(group.merged.objectives, one.snapshot().objectives, strict=True):
        assert merged.total == 2 * single.total and merged.good == 2 * single.good
    assert fleet.services() == {"g": ("a", "b")}


@pytest.mark.parametrize("chosen", ["a", None])
def test_what_is_shown_of_a_fleet(chosen):
    from engine.remote.fleet.fleet_engine import FleetEngine

    shown = FleetEngine(Fleet([watched("a")[0], watched("b")[0]], PROMISED))
    shown.choose(target=chosen, group=None if chosen else "g")
    assert shown.members == (("a",) if chosen else ("a", "b"))
