"""Who was simulated stands in for those that came when the fleet was as busy."""

from engine.simulated.fleet import UNFINISHED, Outcome
from playbooks.forecast.stand_ins import Moment, stand_ins

CALM, BUSY, WORSE = (0.5, 0.0), (2.0, 10.0), (4.0, 30.0)
"""Batches, and seconds for what waits."""


def path(*states, came=10):
    return [Moment(15.0 * i, came, *state) for i, state in enumerate(states, 1)]


def outcomes(at_s, count, wait_s, **more):
    ms = 1e3 * wait_s
    return [Outcome(at_s, "length", ms + 100, 20.0, ms + 900, ms, 40, 40) for _ in range(count)]


SIMULATED = outcomes(10.0, 20, 0.0) + outcomes(25.0, 20, 10.0)


def test_all_that_came_are_told_by_those_that_were_simulated_in_such_a_queue():
    found = list(stand_ins(SIMULATED, path(CALM, BUSY, CALM, WORSE), 1e9))
    assert len(found) == 40
    waits = {at: {o.queue_ms for o in found if o.at_s == at} for at in (15.0, 30.0, 45.0, 60.0)}
    assert waits == {15.0: {0.0}, 30.0: {10e3}, 45.0: {0.0}, 60.0: {30e3}}
    late = next(o for o in found if o.at_s == 60.0)
    assert (late.ttft_ms, late.tpot_ms, late.e2e_ms) == (30_100, 20.0, 30_900)


def test_times_count_with_those_that_came_in_them():
    calm, busy = path(CALM, BUSY)
    few = [calm._replace(came=300), busy._replace(came=100)]
    found = list(stand_ins(SIMULATED, few, 1e9))
    assert [sum(o.at_s == at for o in found) for at in (15.0, 30.0)] == [30, 10]


def test_nobody_waits_less_than_nothing():
    (one,) = stand_ins(outcomes(10.0, 1, 2.0), [*path(BUSY, came=0), Moment(30.0, 1, 0.1, 0.0)], 99)
    assert (one.queue_ms, one.ttft_ms) == (0.0, 100)


def test_who_would_get_nothing_in_time_does_not_end():
    found = list(stand_ins(SIMULATED, path(CALM, BUSY, WORSE, came=20), 60.0))
    assert {o.reason for o in found if o.at_s == 45.0} == {UNFINISHED}
    assert {o.reason for o in found if o.at_s < 45.0} == {"length"}


def test_an_hour_without_any_is_told_by_the_nearest_that_has():
    rejected = Outcome(10.0, "rejected", prompt_tokens=900)
    long = [Moment(15.0, 1, *CALM), Moment(40_000.0, 1, *CALM)]
    assert [o.at_s for o in stand_ins([rejected, rejected], long, 1e9)] == [15.0, 40_000.0]
    assert list(stand_ins([], long, 1e9)) == list(stand_ins([rejected], [], 1e9)) == []
