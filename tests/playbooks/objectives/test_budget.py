"""Budgets of series made by hand: every figure can be worked out on paper."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from engine.observing.objectives import Objective
from engine.snapshot import ObjectiveCount
from playbooks.objectives.budget import FAST, RATES, SLOW, Budget, budgets
from playbooks.objectives.course import Course
from playbooks.objectives.file import Objectives

HOUR, DAY = 3600.0, 86_400.0
WINDOW = 30 * DAY
TTFT = Objective("ttft", 0.99, within_s=0.5)
PROMISED = Objectives((TTFT,), WINDOW)
BEGAN = 1_798_070_400.0


def counted(good: float, total: float, unsure: float = 0, since: float | None = BEGAN, **more):
    return ObjectiveCount(
        "ttft", 500.0, round(good), round(total), round(unsure), since=since, **more
    )


def course_of(rows: Iterable[tuple[float, ObjectiveCount]], promised=PROMISED) -> Course:
    course = Course(promised.each, promised.window_s)
    for at, count in rows:
        course.look(BEGAN + at, [count])
    return course


def steady(hours: float, per_s: float, bad: float, step_s: float = 60.0, first=0.0, base=(0, 0)):
    """Looks every `step_s`: `per_s` requests a second, of which a share `bad` misses."""
    for n in range(int(hours * HOUR / step_s) + 1):
        total = base[1] + n * step_s * per_s
        yield first + n * step_s, counted(base[0] + (total - base[1]) * (1 - bad), total)


def budget_of(course: Course, at: float, promised=PROMISED) -> Budget:
    (budget,) = budgets(promised, [course], BEGAN + at)
    return budget


def test_a_tenth_of_the_window_with_twice_the_misses_has_spent_a_fifth():
    """3 days of 30, 2 % missed where 1 % is allowed."""
    budget = budget_of(course_of(steady(72, 1.0, 0.02, step_s=600)), 3 * DAY)
    assert budget.tally.total == 259_200 and budget.tally.missed == 5184
    assert budget.spent == pytest.approx(0.200, abs=5e-4)
    assert budget.pace == pytest.approx(2.00, abs=5e-3)
    assert budget.least == budget.spent == budget.most and budget.bounds_ms is None
    # 0.8 of it is left; 30 days last half as long at twice the pace: 12 days
    assert budget.gone_s == pytest.approx(12 * DAY, rel=1e-3)
    assert budget.lasts is False and not budget.trouble


def test_spending_within_what_is_allowed_lasts():
    budget = budget_of(course_of(steady(72, 1.0, 0.005, step_s=600)), 3 * DAY)
    assert budget.spent == pytest.approx(0.0500, abs=5e-5)
    assert budget.gone_s is None and budget.lasts is True


def test_burn_over_both_parts_of_the_window():
    """Ten minutes in which 40 % miss, after 12 h in which 0.5 % do; 30 days: 1 h and 5 min, 6 h and
    30 min."""
    calm = list(steady(12, 1.0, 0.005))
    at, last = calm[-1]
    storm = list(steady(1 / 6, 1.0, 0.4, first=at, base=(last.good, last.total)))[1:]
    budget = budget_of(course_of([*calm, *storm]), storm[-1][0])
    fast, slow = budget.fast, budget.slow
    assert (fast.long_s, fast.short_s) == (HOUR, 300) and (slow.long_s, slow.short_s) == (
        6 * HOUR,
        1800,
    )
    assert fast.over_long == pytest.approx((3000 * 0.005 + 600 * 0.4) / 3600 / 0.01, rel=1e-3)
    assert fast.over_short == pytest.approx(40.0, rel=1e-3)
    assert slow.over_long == pytest.approx((21_000 * 0.005 + 240) / 21_600 / 0.01, rel=1e-3)
    assert slow.over_short == pytest.approx((1200 * 0.005 + 240) / 1800 / 0.01, rel=1e-3)
    assert fast.rate == pytest.approx(7.083, abs=5e-4) and not fast.told
    assert slow.rate == pytest.approx(1.597, abs=5e-4) and not slow.told


def test_burn_is_told_when_both_parts_are_beyond_and_no_longer_when_it_is_over():
    calm = list(steady(12, 1.0, 0.001))
    at, last = calm[-1]
    storm = list(steady(0.5, 1.0, 0.4, first=at, base=(last.good, last.total)))
    course = course_of([*calm, *storm[1:]])
    after, end = storm[-1]
    budget = budget_of(course, after)
    assert budget.fast.told and budget.trouble
    for when, count in list(steady(0.2, 1.0, 0.0, first=after, base=(end.good, end.total)))[1:]:
        course.look(BEGAN + when, [count])
    cured = budget_of(course, after + 600)
    assert (cured.fast.over_long or 0) > RATES[FAST][0] and cured.fast.over_short == 0
    assert not cured.fast.told


def test_the_parts_scale_with_the_window():
    for days, fast, slow in ((30, (3600, 300), (21_600, 1800)), (8, (960, 80), (5760, 480))):
        promised = Objectives((TTFT,), days * DAY)
        budget = budget_of(course_of([(0.0, counted(0, 0))], promised), 0.0, promised)
        assert (budget.fast.long_s, budget.fast.short_s) == pytest.approx(fast)
        assert (budget.slow.long_s, budget.slow.short_s) == pytest.approx(slow)


def test_few_misses_are_no_course_of_things():
    """Four of six requests: 67 times as many as allowed, and still only four."""
    rows = [(0.0, counted(0, 0)), (120.0, counted(2, 6))]
    budget = budget_of(course_of(rows), 120.0)
    assert budget.fast.over_long == pytest.approx(66.7, abs=0.05)
    assert budget.fast.rate == 0.0 and not budget.trouble


def test_a_counter_that_began_anew_loses_nothing_that_is_known():
    rows = [
        (0.0, counted(0, 0)),
        (20.0, counted(90, 100)),
        (40.0, counted(30, 40, since=BEGAN + 30)),
    ]
    budget = budget_of(course_of(rows), 40.0)
    assert (budget.tally.total, budget.tally.missed) == (140, 20)
    assert budget.spent == pytest.approx(20 / 140 / 0.01 * 40 / WINDOW)


def test_what_was_counted_before_the_first_look_is_not_of_this_window():
    rows = [(0.0, counted(5000, 9000)), (60.0, counted(5100, 9100))]
    tally = budget_of(course_of(rows), 60.0).tally
    assert (tally.total, tally.missed) == (100, 0)


def test_a_gap_is_not_seen_unless_the_engine_counted_on():
    def gap(since: float | None) -> Budget:
        rows = [(n * 10.0, counted(n * 10, n * 10, since=since)) for n in range(361)]
        rows += [
            (7200.0 + n * 10, counted(3700 + n * 5, 3700 + n * 10, since=since)) for n in range(361)
        ]
        return budget_of(course_of(rows), 10_800.0)

    counted_on = gap(BEGAN)
    assert counted_on.unseen_s == 0 and counted_on.tally.total == 7300
    unknown = gap(None)
    assert unknown.unseen_s == 3600 and unknown.tally.total == 7300
    # the same misses of the same requests, of which less time is known: less is spent of the window
    assert unknown.spent == pytest.approx((counted_on.spent or 0) * 2 / 3)


def test_none_is_not_zero():
    nothing = budget_of(course_of([(0.0, counted(0, 0)), (60.0, counted(0, 0))]), 60.0)
    for value in (nothing.spent, nothing.pace, nothing.gone_s, nothing.lasts, nothing.fast.rate):
        assert value is None
    (unseen,) = budgets(PROMISED, [], BEGAN)
    assert unseen.spent is None and not unseen.trouble
    fine = budget_of(course_of([(0.0, counted(0, 0)), (60.0, counted(10, 10))]), 60.0)
    assert fine.spent == 0.0 and fine.lasts is True


def test_a_limit_within_a_bucket_leaves_a_range():
    """500 ms between 250 and 750: of 100 in that bucket about half kept to it."""
    count = counted(800, 1000, 100, above_ms=250.0, below_ms=750.0)
    budget = budget_of(course_of([(0.0, counted(0, 0)), (60.0, count)]), 60.0)
    tally = budget.tally
    assert (tally.least, tally.missed, tally.most) == (100, 150, 200)
    assert budget.bounds_ms == (250.0, 750.0)
    assert (
        budget.least / 100 == pytest.approx(budget.spent / 150) == pytest.approx(budget.most / 200)
    )


def test_beyond_the_last_bound_all_may_have_missed():
    count = counted(900, 1000, 100, above_ms=400.0, below_ms=None)
    tally = budget_of(course_of([(0.0, counted(0, 0)), (60.0, count)]), 60.0).tally
    assert (tally.least, tally.missed, tally.most) == (0, 100, 100)


def test_a_window_with_a_beginning_ends():
    promised = Objectives((TTFT,), 10 * DAY, begins=BEGAN + DAY)
    rows = list(steady(96, 1.0, 0.02, step_s=600))
    course = course_of(rows, promised)
    before = budget_of(course, DAY / 2, promised)
    assert before.tally.total == 0 and before.spent is None
    inside = budget_of(course, 4 * DAY, promised)
    assert inside.tally.total == 3 * DAY and inside.spent == pytest.approx(0.6, abs=5e-4)
    assert inside.left_s == 7 * DAY
    # 0.4 of it is left: at twice the pace it lasts 2 days of the 7
    assert inside.gone_s == pytest.approx(2 * DAY, rel=1e-3) and inside.lasts is False


def test_slower_than_the_window_ends_it_lasts():
    promised = Objectives((TTFT,), 10 * DAY, begins=BEGAN)
    inside = budget_of(course_of(steady(96, 1.0, 0.009, step_s=600), promised), 4 * DAY, promised)
    assert (
        inside.gone_s is not None and inside.gone_s > (inside.left_s or 0) and inside.lasts is True
    )


def test_spent_all_is_gone():
    promised = Objectives((TTFT,), DAY)
    budget = budget_of(course_of(steady(24, 1.0, 0.02, step_s=60), promised), DAY, promised)
    assert budget.spent == pytest.approx(2.0, abs=5e-3)
    assert budget.gone_s == 0 and budget.trouble and budget.lasts is False


def test_a_rolling_window_forgets_and_stays_small():
    promised = Objectives((TTFT,), DAY)
    bad = list(steady(6, 1.0, 0.05, step_s=10))
    at, last = bad[-1]
    good = list(steady(30, 1.0, 0.0, step_s=10, first=at, base=(last.good, last.total)))[1:]
    course = course_of([*bad, *good], promised)
    assert len(course.to_dict()["rows"]) < 1000
    budget = budget_of(course, 36 * HOUR, promised)
    assert budget.tally.total == pytest.approx(DAY, rel=2e-3)
    assert budget.spent == 0.0


def test_replicas_are_one_service():
    a = course_of(steady(1, 1.0, 0.0))
    b = course_of(steady(1, 1.0, 0.1))
    (both,) = budgets(PROMISED, [a, b], BEGAN + HOUR)
    assert (both.tally.total, both.tally.missed) == (7200, 360)
    assert both.fast.over_long == pytest.approx(5.0)


@pytest.mark.parametrize("kind", [FAST, SLOW])
def test_a_burn_alert_spends_what_it_should(kind):
    """At the rate that is told, the longer part spends 2 % and 5 % of the budget."""
    above, long, _ = RATES[kind]
    assert above * long == pytest.approx({FAST: 0.02, SLOW: 0.05}[kind])
