"""Counts of who met an objective: exact where the engine knows the limit, else with a range."""

from __future__ import annotations

import math

import pytest

from engine.observing.objectives import Objective, count
from engine.observing.telemetry import Telemetry
from engine.request import FinishReason, Request, SamplingParams
from engine.simulated.clock import VirtualClock
from engine.snapshot import ObjectiveCount, Snapshot
from engine.stream import Stream

TTFT, E2E = Objective("ttft", 0.99, 0.3), Objective("e2e", 0.9, 1.0)
SERVED = Objective("availability", 0.999)
ROWS = ((0.25, 10.0), (0.5, 14.0), (1.0, 20.0), (math.inf, 25.0))


BEGAN = 1_798_070_400.0


def counting(*objectives: Objective) -> Telemetry:
    telemetry = Telemetry(VirtualClock(unix=BEGAN))
    telemetry.hold_to(objectives)
    return telemetry


def ended(telemetry: Telemetry, ttft_ms: float, e2e_ms: float, reason=FinishReason.STOP) -> None:
    request = Request("r", SamplingParams(), Stream("r"))
    stamps = request.stamps
    stamps.arrival = stamps.queued = stamps.first_scheduled = 1_000_000_000
    stamps.tokens.extend(stamps.arrival + round(ms * 1e6) for ms in (ttft_ms, e2e_ms))
    stamps.finished = stamps.last_token
    telemetry.meters.first_token(request, stamps.first_token)
    telemetry.ended_with(request, reason)


def test_an_engine_of_this_process_counts_exactly():
    telemetry = counting(TTFT, E2E, SERVED)
    for ttft in (100, 299, 300, 301, 400):
        ended(telemetry, ttft, ttft * 3)
    ended(telemetry, 310, 900, FinishReason.ERROR)
    ended(telemetry, 310, 900, FinishReason.CANCELLED)
    ttft, e2e, served = telemetry.objectives()
    assert (ttft.good, ttft.total, ttft.unsure, ttft.above_ms) == (3, 7, 0, None)
    assert (e2e.good, e2e.total, e2e.limit_ms) == (4, 5, 1000.0)
    assert (served.good, served.total, served.limit_ms) == (5, 6, None)
    assert {one.since for one in (ttft, e2e, served)} == {BEGAN}


def test_before_any_request_all_counts_are_nought():
    assert [(one.good, one.total) for one in counting(TTFT, E2E, SERVED).objectives()] == [
        (0, 0)
    ] * 3


def test_without_objectives_nothing_is_counted():
    assert counting().objectives() == ()


@pytest.mark.parametrize(
    ("within_s", "good", "unsure", "bounds"),
    [
        (0.25, 10, 0, (None, None)),
        (0.3, 10, 4, (250.0, 500.0)),
        (0.1, 0, 10, (0.0, 250.0)),
        (1.0, 20, 0, (None, None)),
        (3.0, 20, 5, (1000.0, None)),
    ],
)
def test_a_limit_between_bounds_leaves_some_unsure(within_s, good, unsure, bounds):
    (one,) = count([Objective("ttft", 0.9, within_s)], {"ttft": ROWS}, {}, None)
    assert (one.good, one.unsure, one.total) == (good, unsure, 25)
    assert (one.above_ms, one.below_ms) == bounds


@pytest.mark.parametrize(
    ("finished", "counted"),
    [
        ({}, None),
        ({"finished": 9}, None),
        ({"stop": 5, "length": 2, "abort": 3}, (7, 7)),
        ({"stop": 5, "error": 1, "timeout": 1, "rejected": 1, "cancelled": 4}, (5, 8)),
        ({"success": 5, "failure": 2}, (5, 7)),
    ],
)
def test_availability_is_of_requests_that_were_not_called_off(finished, counted):
    found = count([SERVED], {}, finished, None)
    assert [(one.good, one.total) for one in found] == ([] if counted is None else [counted])


@pytest.mark.parametrize("rows", [(), ((math.inf, 12.0),)])
def test_what_an_engine_does_not_tell_is_not_counted(rows):
    assert count([TTFT], {"ttft": rows}, {}, None) == ()


def test_counts_are_in_a_snapshot_s_json():
    counted = ObjectiveCount("ttft", 300.0, 3, 5, 1, 250.0, 500.0, 12.0)
    snapshot = Snapshot(objectives=(counted,))
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
