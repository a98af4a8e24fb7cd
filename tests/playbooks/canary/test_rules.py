"""Each rule on known numbers, and all of them over thousands of simulated canaries."""

import numpy as np
import pytest
from scipy.stats import fisher_exact

from checklists.tomlfile import checked
from engine.errors import ConfigError
from playbooks.canary.evidence import (
    CanaryEvidence,
    CanaryQuality,
    Gauge,
    GaugeSeries,
    Probes,
    Sample,
    usual_ms,
)
from playbooks.canary.plan import CanaryPlan, parse_stages
from playbooks.canary.router import BASELINE, CANDIDATE
from playbooks.canary.rules import (
    CanaryAction,
    RuleVerdict,
    Ruling,
    crosstalk_rule,
    decide,
    error_rule,
    faults_rule,
    fisher,
    judge,
    low_water,
    memory_rule,
    quality_rule,
    tail_rule,
)

PLAN = CanaryPlan()
HOUR = 3600.0


# --- errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b", "c", "d"), [(0, 1000, 6, 100), (3, 50, 9, 40), (5, 9, 0, 4)])
def test_fisher_is_fishers_test(a, b, c, d):
    table = [[c, d - c], [a, b - a]]
    assert fisher((a, b), (c, d)) == pytest.approx(fisher_exact(table, "greater").pvalue)


@pytest.mark.parametrize(
    ("base", "candidate", "call"),
    [
        ((0, 3000), (0, 300), RuleVerdict.PASS),
        ((30, 3000), (3, 300), RuleVerdict.PASS),
        ((30, 3000), (4, 300), RuleVerdict.PASS),  # a third of a point more
        ((0, 3000), (30, 300), RuleVerdict.ROLL_BACK),
        ((0, 3000), (6, 100), RuleVerdict.ROLL_BACK),  # proved before there are enough
        ((0, 3000), (2, 300), RuleVerdict.HOLD),  # more than half a point, and no proof
        ((0, 3000), (0, 299), RuleVerdict.HOLD),
        ((0, 0), (0, 300), RuleVerdict.HOLD),
        ((300, 3000), (0, 300), RuleVerdict.PASS),
    ],
)
def test_error_rates(base, candidate, call):
    assert error_rule(base, candidate, PLAN).call is call


def test_a_proven_difference_that_nobody_would_notice_is_none():
    found = error_rule((1000, 10_000_000), (3000, 10_000_000), PLAN)
    assert found.call is RuleVerdict.PASS
    assert fisher((1000, 10_000_000), (3000, 10_000_000)) < 1e-100


@pytest.mark.parametrize(("faults", "call"), [(2, RuleVerdict.PASS), (3, RuleVerdict.ROLL_BACK)])
def test_three_faults_are_the_end(faults, call):
    assert faults_rule(faults, PLAN).call is call


# --- latency ----------------------------------------------------------------------------


def lognormal(n, scale=1.0, seed=0, sigma=0.2):
    return scale * np.random.default_rng(seed).lognormal(0, sigma, n)


@pytest.mark.parametrize(
    ("n", "scale", "call"),
    [(20_000, 1.0, RuleVerdict.PASS), (20_000, 1.3, RuleVerdict.ROLL_BACK),
     (400, 1.0, RuleVerdict.HOLD), (250, 1.0, RuleVerdict.HOLD), (400, 2.0, RuleVerdict.ROLL_BACK)],
)  # fmt: skip
def test_the_tail_is_proved_higher_proved_not_or_neither(n, scale, call):
    assert tail_rule(lognormal(20_000), lognormal(n, scale, 1), PLAN).call is call


def test_lengths_are_taken_out_of_the_slowdown():
    """The candidate happens to get requests three times as long; it is as fast."""
    rng, evidence = np.random.default_rng(5), CanaryEvidence()
    for side, longer in ((BASELINE, 1), (CANDIDATE, 3)):
        for _ in range(3000):
            prompt, output = longer * rng.integers(5, 50), longer * rng.integers(5, 50)
            e2e = (10 + 0.2 * prompt + 12 * output) * rng.lognormal(0, 0.1)
            evidence.samples[side].append(Sample(int(prompt), int(output), float(e2e)))
    assert usual_ms(evidence.samples[BASELINE]) == pytest.approx([10, 0.2, 12], rel=0.3)
    assert tail_rule(*evidence.tails("e2e"), PLAN).call is RuleVerdict.ROLL_BACK
    assert tail_rule(*evidence.tails("slowdown"), PLAN).call is RuleVerdict.PASS


def test_failed_requests_have_no_latency():
    evidence = CanaryEvidence()
    evidence.samples[CANDIDATE] = [Sample(1, 1, None, error="timeout"), Sample(1, 1, 5.0, 2.0)]
    assert len(evidence.tails("ttft")[1]) == 1
    assert evidence.errors(CANDIDATE) == (1, 2)


# --- memory -----------------------------------------------------------------------------


def series(values, limit=1e9, seconds=600.0):
    found = GaugeSeries("kv", limit)
    for at, value in zip(np.linspace(0, seconds, len(values)), values, strict=True):
        found.add(float(at), Gauge("kv", float(value), limit))
    return found


def noisy(count, per_s, seed=0, seconds=600.0):
    """Requests come and go on top of a leak."""
    at = np.linspace(0, seconds, count)
    return 1e6 * np.random.default_rng(seed).uniform(0, 50, count) + per_s * at


@pytest.mark.parametrize(
    ("per_s", "call"),
    [
        (0.0, RuleVerdict.PASS),
        (1e6, RuleVerdict.ROLL_BACK),
        (-1e5, RuleVerdict.PASS),
        (100.0, RuleVerdict.PASS),
    ],
)
def test_a_leak_lifts_the_low_water_mark(per_s, call):
    """1 GB at 1 MB/s is gone within the day; at 100 B/s it lasts for months."""
    assert memory_rule([series(noisy(400, per_s))], PLAN).call is call


def test_a_slow_leak_without_noise_is_proved_and_does_no_harm():
    found = memory_rule([series(np.arange(100.0))], PLAN)
    assert found.call is RuleVerdict.PASS
    assert found.numbers["runs_out_s"] > PLAN.horizon_s


def test_a_leak_is_said_in_words():
    rising = [1e6 * step for step in range(100)]
    found = memory_rule([series(rising)], PLAN)
    assert found.why == "kv grows by 573.2 MiB/h and runs out in 1.5 h"


def test_what_warms_up_and_then_stays_is_no_leak():
    at = np.linspace(0, 600, 100)
    assert (
        memory_rule([series(1e8 * (1 - np.exp(-at / 20)))], PLAN).call is not RuleVerdict.ROLL_BACK
    )


def test_few_readings_hold_and_the_worst_gauge_decides():
    assert memory_rule([], PLAN).call is RuleVerdict.HOLD
    assert memory_rule([series([1, 2, 3])], PLAN).call is RuleVerdict.HOLD
    calm, leak = series(noisy(400, 0)), series(noisy(400, 1e6))
    assert memory_rule([calm, leak, series([1.0])], PLAN).call is RuleVerdict.ROLL_BACK
    assert low_water(series([5.0] * 40))[1] == [5.0] * 20


# --- what it says -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "candidate", "call"),
    [
        (Probes(8), Probes(8), RuleVerdict.PASS),
        (Probes(8), Probes(0), RuleVerdict.HOLD),
        (Probes(8), Probes(8, differing=1), RuleVerdict.PASS),
        (Probes(8), Probes(8, differing=3), RuleVerdict.HOLD),
        (Probes(8), Probes(8, differing=8), RuleVerdict.ROLL_BACK),
        (Probes(8, differing=7), Probes(8, differing=8), RuleVerdict.PASS),
        (Probes(8), Probes(8, mixed=1), RuleVerdict.ROLL_BACK),
    ],
)
def test_answers_that_change_in_company(base, candidate, call):
    assert crosstalk_rule(base, candidate).call is call


@pytest.mark.parametrize(
    ("verdict", "call"),
    [("pass", RuleVerdict.PASS), ("warn", RuleVerdict.PASS), ("fail", RuleVerdict.ROLL_BACK),
     ("inconclusive", RuleVerdict.HOLD)],
)  # fmt: skip
def test_quality(verdict, call):
    assert quality_rule(CanaryEvidence(quality=CanaryQuality(verdict))).call is call
    assert quality_rule(CanaryEvidence()).call is RuleVerdict.HOLD


# --- all together -----------------------------------------------------------------------


def rulings(*calls):
    return [Ruling("x", call, "") for call in calls]


@pytest.mark.parametrize(
    ("calls", "ripe", "expired", "action"),
    [
        ((RuleVerdict.PASS, RuleVerdict.PASS), True, False, CanaryAction.ADVANCE),
        ((RuleVerdict.PASS, RuleVerdict.WAIVED), True, True, CanaryAction.ADVANCE),
        ((RuleVerdict.PASS, RuleVerdict.PASS), False, False, CanaryAction.HOLD),
        ((RuleVerdict.PASS, RuleVerdict.HOLD), True, False, CanaryAction.HOLD),
        ((RuleVerdict.PASS, RuleVerdict.HOLD), True, True, CanaryAction.INCONCLUSIVE),
        ((RuleVerdict.HOLD, RuleVerdict.ROLL_BACK), False, True, CanaryAction.ROLL_BACK),
    ],
)
def test_only_proof_and_time_advance(calls, ripe, expired, action):
    assert decide(rulings(*calls), ripe, expired) is action


def test_without_any_evidence_nothing_passes_but_the_count_of_faults():
    found = {r.rule: r.call for r in judge(CanaryEvidence(), PLAN)}
    assert found.pop("faults") is RuleVerdict.PASS
    assert set(found.values()) == {RuleVerdict.HOLD}


def test_a_waiver_covers_what_is_missing_and_not_what_is_proved():
    plan = CanaryPlan(waive=("memory", "crosstalk", "quality"))
    evidence = CanaryEvidence(quality=CanaryQuality("fail"), memory={"kv": series(noisy(400, 1e6))})
    found = {r.rule: r.call for r in judge(evidence, plan)}
    assert found["crosstalk"] is RuleVerdict.WAIVED
    assert found["memory"] is found["quality"] is RuleVerdict.ROLL_BACK


def simulate(rng, plan, slower, failing, looks=4, a_look=(200, 40)):
    """One stage on which the sides differ as told, looked at while samples come in."""
    counts, times = [(0, 0), (0, 0)], [np.empty(0), np.empty(0)]
    for look in range(1, looks + 1):
        for i, (count, factor, rate) in enumerate(zip(a_look, (1, slower), (0.01, failing),
                                                      strict=True)):  # fmt: skip
            bad = int((rng.random(count) < rate).sum())
            counts[i] = (counts[i][0] + bad, counts[i][1] + count)
            times[i] = np.append(times[i], factor * 100 * rng.lognormal(0, 0.4, count - bad))
        held = series(rng.uniform(0, 1e8, 12 * look)) if look in (2, looks) else series([1.0])
        found = [error_rule(*counts, plan), tail_rule(*times, plan), memory_rule([held], plan)]
        if decide(found, True, False) is CanaryAction.ROLL_BACK:
            return True
    return False


def test_a_candidate_as_good_as_the_baseline_is_hardly_ever_rolled_back():
    """2,000 of them, at 1 % failures, four looks each: alpha at most."""
    plan, rng = CanaryPlan(min_samples=35), np.random.default_rng(0)
    false = sum(simulate(rng, plan, 1.0, 0.01) for _ in range(2000))
    assert false / 2000 <= plan.alpha


@pytest.mark.parametrize(("slower", "failing"), [(2.0, 0.01), (1.0, 0.15)])
def test_one_that_is_worse_is_found(slower, failing):
    plan, rng = CanaryPlan(min_samples=35), np.random.default_rng(1)
    found = sum(simulate(rng, plan, slower, failing) for _ in range(100))
    assert found >= 98


# --- the plan ---------------------------------------------------------------------------


def test_alpha_is_divided_over_rules_and_looks():
    plan = CanaryPlan()
    assert plan.looks == 4 * 25
    assert plan.look_alpha * plan.looks * 3 == pytest.approx(0.01)
    assert plan.look_s == 300.0
    assert CanaryPlan(time_scale=0.1).looks == plan.looks
    assert CanaryPlan(time_scale=0.1).look_s == 30.0


@pytest.mark.parametrize(("samples", "tail"), [(300, 0.99), (299, 0.99), (298, 0.9), (29, 0.9)])
def test_the_tail_is_the_one_that_so_many_samples_can_bound(samples, tail):
    plan = CanaryPlan(min_samples=samples)
    assert plan.tail == tail
    assert bool(plan.warnings) == (tail == 0.9)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"stages": ""}, "stages"), ({"stages": "10,10"}, "rising"),
        ({"stages": "50,150"}, "stages"), ({"stages": "0,100"}, "stages"),
        ({"min_samples": 28}, "min_samples"), ({"time_scale": 0.0}, "time_scale"),
        ({"least_s": 10.0, "hold_s": 5.0}, "hold_s"), ({"metric": "luck"}, "metric"),
        ({"waive": ("errors",)}, "waive"), ({"alpha": 0.0}, "alpha"), ({"users": 0}, "users"),
        ({"least_s": float("nan")}, "least_s"), ({"stages": "nan"}, "stages"),
    ],
)  # fmt: skip
def test_bad_plans_are_refused(settings, why):
    with pytest.raises(ConfigError, match=why):
        checked(CanaryPlan, settings)


def test_stages_from_text():
    assert parse_stages("1,10,50,100") == (0.01, 0.1, 0.5, 1.0)
    with pytest.raises(ConfigError, match="percentages"):
        parse_stages("1;10")
