"""Courses through a fleet: whole, and by a part of the replicas and of the time."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from engine.errors import ConfigError
from engine.simulated.scaling import Loss, Scaling
from forecasts import a_fit, a_scenario, traffic
from playbooks.forecast.course import World, run_whole
from playbooks.forecast.figures import figures_of, saturations
from playbooks.forecast.pace import Pace, pace_of
from playbooks.forecast.typical import Sampling, edges_of, run_typical
from playbooks.load.slo import Slo

ABLE = 5.2
"""Requests/s of one replica of `a_fit`, as `capacity` says."""
SLO = Slo(ttft=500, tpot=50)


@cache
def whole(rates, replicas=1, slot_s=600.0, **more):
    day = traffic(rates, slot_s)
    return figures_of(run_whole(a_scenario(replicas, **more), World(day), ABLE), SLO)


def test_a_replica_does_what_its_capacity_says():
    able = pace_of(a_scenario(), traffic([6.0], 600.0)).able
    assert able == pytest.approx(ABLE, rel=0.03)
    (full,) = whole((1.3 * ABLE,)).hours
    assert full.requests_s == pytest.approx(able, rel=0.05)
    assert full.waiting == pytest.approx(0.3 * ABLE * 600, rel=0.15)


def test_capacity_needs_requests():
    with pytest.raises(ConfigError, match="too few to say what a replica can do"):
        pace_of(a_scenario(), traffic([0.001], 60.0))


def test_below_its_capacity_all_is_well_and_above_it_saturates_and_recovers():
    calm = whole((0.6 * ABLE,))
    assert calm.saturations == [] and calm.hours[0].good > 0.98 and calm.hours[0].answered == 1
    full = whole((0.5 * ABLE, 1.5 * ABLE, 0.5 * ABLE, 0.5 * ABLE), slot_s=300.0)
    (span,) = full.saturations
    assert span.from_s == pytest.approx(300, abs=60)
    assert span.until_s == pytest.approx(300 + 300 + 0.5 * 300 / 0.5, rel=0.12)
    assert span.worst_delay_s == pytest.approx(0.5 * 300, rel=0.15)
    assert full.hours[0].good < 0.7


def test_a_period_that_ends_in_a_queue_does_not_recover():
    (span,) = whole((1.5 * ABLE,)).saturations
    assert span.until_s is None


def test_requests_that_are_too_long_fail_and_are_counted():
    day = traffic([1.0], 300.0, lengths="uniform:400-700,10-20")
    found = figures_of(run_whole(a_scenario(), World(day), ABLE), SLO)
    assert found.rejected > 10
    assert found.hours[0].answered == pytest.approx(1 - found.rejected / found.hours[0].offered)


def test_lost_replicas_cost_their_requests_and_the_others_the_time():
    found = whole((1.4 * ABLE,), 2, losses=(Loss(1, 120.0, 240.0),))
    (span,) = found.saturations
    assert 100 <= span.from_s <= 200 and span.until_s > 360
    assert found.hours[0].answered < 1
    assert found.hours[0].replicas == pytest.approx(2 - 240 / 600, abs=0.1)
    gone = whole((0.5 * ABLE,), 1, losses=(Loss(1, 300.0),))
    assert gone.hours[0].answered == pytest.approx(0.5, abs=0.05)
    assert gone.saturations[-1].worst_delay_s is None


def test_the_rule_starts_replicas_late_and_lets_them_go_later():
    rates = (0.5 * ABLE, 2.2 * ABLE, 0.2 * ABLE)
    slow, fast = (
        whole(rates, 1, slot_s=200.0, scaling=Scaling(1, 6, 4.0, start_s=start_s, hold_s=30))
        for start_s in (150, 15)
    )
    assert slow.saturations and slow.hours[0].good < fast.hours[0].good
    assert 1 < fast.hours[0].replicas < 6


def test_an_engine_that_is_slower_than_its_fit_saturates_earlier():
    day = traffic([0.95 * ABLE], 500.0)
    fits, slow = (
        figures_of(run_whole(a_scenario(), World(day, speed), ABLE), SLO) for speed in (1.1, 0.85)
    )
    assert not fits.saturations and slow.saturations


def test_the_same_seed_gives_the_same_course():
    courses = [
        run_whole(a_scenario(2, fit=a_fit(drift=0.1)), World(traffic([4.0], 120.0), 0.9, 3), ABLE)
        for _ in range(2)
    ]
    assert courses[0].outcomes == courses[1].outcomes and courses[0].ticks == courses[1].ticks


# --- a part for the whole -----------------------------------------------------------------

WINDOWS = Sampling(2, 90.0, 15.0)
PACE = pace_of(a_scenario(), traffic([6.0], 600.0))


def typical(rates, replicas, places=(0.2, 0.5, 0.8), slot_s=3600.0, **more):
    day = traffic(rates, slot_s)
    return [
        figures_of(run_typical(a_scenario(replicas, **more), World(day), PACE, WINDOWS, place), SLO)
        for place in places
    ]


def together(days, hour, name, q):
    return float(np.percentile(np.concatenate([d.hours[hour].samples[name] for d in days]), q))


def test_windows_of_two_of_three_replicas_agree_with_every_request_of_all():
    rates = (2.2 * ABLE,)
    exact, parts = whole(rates, 3, 900.0).hours[0], typical(rates, 3, slot_s=900.0)
    for name, q, within in (("ttft_ms", 50, 0.1), ("e2e_ms", 50, 0.1), ("e2e_ms", 99, 0.2)):
        known = np.percentile(exact.samples[name], q)
        assert together(parts, 0, name, q) == pytest.approx(known, rel=within)
    for day in parts:
        assert day.saturations == []
        assert day.hours[0].offered == pytest.approx(exact.offered, rel=0.05)
        assert day.hours[0].output_tok_s == pytest.approx(exact.output_tok_s, rel=0.2)


def test_a_queue_goes_on_between_windows():
    rates = (1.0 * ABLE, 2.4 * ABLE, 1.0 * ABLE, 0.5 * ABLE)
    for day in typical(rates, 2, places=(0.2, 0.8)):
        (span,) = day.saturations
        assert span.from_s == pytest.approx(3600, abs=60)
        assert span.until_s == pytest.approx(7200 + 0.4 * 3600, rel=0.1)
        assert span.worst_delay_s == pytest.approx(0.2 * 3600, rel=0.15)
        assert day.hours[3].good == pytest.approx(1, abs=0.02)


def test_how_many_requests_there_are_follows_bursts_between_windows():
    """Queues by chance are no shorter for standing between the windows."""
    day = traffic((0.92 * 2 * ABLE,), 1200.0, seed=2, cv=3.0)
    exact = run_whole(a_scenario(2), World(day), ABLE)
    part = run_typical(a_scenario(2), World(day), PACE, Sampling(2, 20.0, 5.0, 3))
    known, found = (np.array([tick.delay_s for tick in one.ticks]) for one in (exact, part))
    assert known.max() > 5
    for q in (50, 75, 90, 99):
        assert np.percentile(found, q) == pytest.approx(np.percentile(known, q), rel=0.2, abs=1.0)
    assert part.offered == exact.offered
    assert len(part.outcomes) == pytest.approx(len(exact.outcomes) * 60 / 1200, rel=0.2)


def test_no_step_between_windows_is_empty():
    """As one was where an end was a whole number of steps but for a rounding."""
    for number in range(2000):
        begin, step = 0.1 * number, 15 / (1 + number % 37)
        edges = edges_of(begin, begin + step * (1 + number % 53), step)
        assert (np.diff(edges) > 0).all() and np.diff(edges).max() <= step * 1.001
        assert len(edges) == 2 + number % 53


def test_a_pace_says_how_many_requests_have_not_ended():
    pace = Pace(able=4.0, full=8.0, alone_s=1.0)  # and 2 s each in a full batch
    assert pace.left(100.0, 30.0, 5.0) == 100 + 30 - 4 * 5
    assert pace.left(1.0, 0.0, 1.0) == pytest.approx(math.exp(-1))
    calm = 0.0
    for _ in range(100):
        calm = pace.left(calm, 0.5 * 15, 15.0)
    assert calm == pytest.approx(0.5 * 1.2, rel=0.5)
    assert pace.times(2.0) == Pace(8.0, 8.0, 0.5)


def test_as_many_end_as_do_not_stay():
    pace = Pace(able=4.0, full=8.0, alone_s=1.0)
    assert pace.ends(100.0, 30.0, 5.0) == pytest.approx(20) and pace.ends(9.0, 0.0, 0.0) == 0
    assert pace.ends(0.0, 60.0, 60.0) + pace.left(0.0, 60.0, 60.0) == pytest.approx(60, rel=0.02)


def test_a_window_begins_with_requests_under_way_and_no_burst_of_prompts():
    """Where prompts cost most, a fleet that had to compute those of all that run would be late."""
    lengths = "lognormal:200,20,0.5"
    pace = pace_of(a_scenario(), traffic([6.0], 600.0, lengths=lengths))
    day = traffic((0.85 * pace.able,), 1200.0, lengths=lengths)
    exact = run_whole(a_scenario(), World(day), pace.able).outcomes
    known = np.percentile([o.ttft_ms for o in exact if o.ttft_ms is not None], (50, 90))
    parts = Sampling(1, 20.0, 5.0, 12)
    found = [
        outcome.ttft_ms
        for place in (0.1, 0.5, 0.9)
        for outcome in run_typical(a_scenario(), World(day), pace, parts, place).outcomes
        if outcome.ttft_ms is not None
    ]
    assert np.percentile(found, (50, 90)) == pytest.approx(known, rel=0.2)


def test_losses_between_windows_count():
    gone = typical((0.5 * ABLE,), 1, losses=(Loss(1, 900.0, 900.0),))
    for day in gone:
        assert day.hours[0].answered == pytest.approx(0.75, abs=0.03)
        assert day.hours[0].replicas == pytest.approx(0.75, abs=0.03)
    for day in typical((1.5 * ABLE,), 2, losses=(Loss(1, 900.0, 900.0),)):
        (span,) = day.saturations
        assert span.from_s == pytest.approx(900, abs=60)
        assert span.until_s == pytest.approx(900 + 900 + 0.5 * 900 / 0.5, rel=0.15)


def test_the_rule_goes_on_between_windows():
    rule = Scaling(1, 6, 4.0, start_s=60)
    sizes = [[hour.replicas for hour in day.hours] for day in typical(
        (0.5 * ABLE, 2.5 * ABLE, 0.5 * ABLE), 1, scaling=rule)]  # fmt: skip
    for quiet, busy, after in sizes:
        assert quiet < busy and after < busy and busy > 2


def test_routers_that_keep_prefixes_are_simulated_whole():
    scenario = a_scenario(3, router="prefix_affinity")
    course = run_typical(scenario, World(traffic([3.0])), PACE, replace(WINDOWS, replicas=1))
    assert max(tick.running for tick in course.ticks if tick.kv is not None) > 0
    assert figures_of(course, SLO).hours[0].good > 0.95


def test_a_short_delay_is_no_saturation():
    day = whole((0.95 * ABLE, 0.5 * ABLE))
    assert day.saturations == []
    assert saturations([]) == []
