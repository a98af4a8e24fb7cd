"""Intervals cover what they say, effects of pairs are found, and curves bend where they bend."""

import math

import numpy as np
import pytest

from playbooks.statistics.intervals import (
    Interval,
    common_noise,
    mean_interval,
    paired_change,
    positive_interval,
    quantile_change,
    theil_sen,
    verdict,
)
from playbooks.statistics.knee import doubling_gain, judge_knee, knee, pooled, segmented_fit

SIZES = [1, 2, 4, 8, 16, 32, 64, 128]


def saturating(fixed, per_row):
    """Tokens/s of a step that costs `fixed` + `per_row` × rows."""
    return [n / (fixed + per_row * n) for n in SIZES]


@pytest.mark.parametrize("n", [3, 5, 12])
def test_a_mean_lies_in_its_interval_as_often_as_promised(n):
    rng = np.random.default_rng(n)
    hits = 0
    for i in range(200):
        found = mean_interval(rng.normal(10, 2, n).tolist(), seed=i)
        hits += found.low <= 10 <= found.high
    assert hits >= 176  # 95 % of 200, less three standard deviations and BCa's shortfall at n = 12


def test_what_has_no_interval_has_none():
    assert mean_interval([5.0]) is None
    assert mean_interval([]) is None
    assert mean_interval([4.0, 4.0, 4.0]) == Interval(4.0, 4.0, 4.0, 3)
    assert positive_interval([4.0]) is None


def test_a_positive_quantity_has_a_positive_interval():
    found = positive_interval([60.0, 120.0])
    assert 0 < found.low < found.estimate < found.high
    assert found.estimate == pytest.approx(math.sqrt(60 * 120))


def test_noise_that_is_common_to_many_points_is_known_from_few_repeats():
    rng = np.random.default_rng(0)
    groups = [(10 * n * rng.lognormal(0, 0.05, 3)).tolist() for n in range(1, 8)]
    assert common_noise(groups) == pytest.approx(2.14 * 0.05 / math.sqrt(3), rel=0.4)
    assert common_noise([[5.0, 5.0], [9.0, 9.0]]) == 0
    assert common_noise([[5.0], [9.0]]) == math.inf


def test_pairs_show_an_effect_that_the_noise_between_repeats_would_hide():
    slow_machine = [100.0, 60.0, 140.0]
    found = paired_change(
        slow_machine, [v * k for v, k in zip(slow_machine, (1.1, 1.12, 1.11), strict=True)]
    )
    assert found.low > 0.05
    assert found.estimate == pytest.approx(0.11, abs=0.01)
    assert verdict(found, "higher") == "better"
    assert verdict(found, "lower") == "worse"


def test_an_interval_that_straddles_zero_decides_nothing():
    found = paired_change([100.0, 100.0, 100.0], [130.0, 80.0, 100.0])
    assert found.low < 0 < found.high
    assert verdict(found, "higher") == "inconclusive"
    assert verdict(None, "higher") == "inconclusive"
    assert verdict(Interval(0.001, -0.01, 0.01, 5), "higher") == "no difference"
    assert verdict(Interval(0.0, 0.0, 0.0, 1), "lower") == "no difference"


def test_a_quantile_of_pairs():
    rng = np.random.default_rng(0)
    before = [rng.lognormal(3, 0.8, 40) for _ in range(3)]
    after = [b * rng.normal(0.7, 0.02, 40) for b in before]
    found = quantile_change(before, after, 0.99, seed=1)
    assert found.n == 120
    assert found.low < -0.25
    assert found.high < -0.2
    assert found == quantile_change(before, after, 0.99, seed=1)  # seeded
    assert verdict(found, "lower") == "better"


@pytest.mark.parametrize(("n", "q", "known"), [(33, 0.99, False), (34, 0.99, True), (3, 0.9, False),
                                               (4, 0.9, True), (1, 0.5, True)])  # fmt: skip
def test_too_few_samples_have_no_quantile(n, q, known):
    arrays = [np.arange(1.0, n + 1) for _ in range(3)]
    assert (quantile_change(arrays, arrays, q) is not None) == known
    assert quantile_change([], [], q) is None


# --- curves ---------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_the_knee_is_the_last_size_whose_doubling_still_gains_fifteen_percent(ratio):
    """For n / (a + b·n) that is n = (2 − 1.15) / .3 · a/b."""
    found = knee(SIZES, saturating(ratio, 1))
    assert found == pytest.approx(0.85 / 0.30 * ratio, rel=0.35)
    assert doubling_gain(SIZES, saturating(ratio, 1), found) >= 0.15
    assert doubling_gain(SIZES, saturating(ratio, 1), found + 1) < 0.15


def test_a_curve_whose_doublings_gain_ever_less_stays_as_it_is():
    assert pooled(SIZES, saturating(4, 1)) == pytest.approx(saturating(4, 1))


def test_a_dip_and_what_makes_up_for_it_gain_what_they_gain_together():
    """Gains of 4 and 19 % are twice 11 %: the curve has not begun to rise again."""
    assert pooled([4, 8, 16, 32], [160, 192, 199.68, 237.62]) == pytest.approx(
        [160, 192, 192 * math.sqrt(1.04 * 1.19), 237.62], rel=1e-4
    )
    gains = [1.5, 1.25, 1.04, 1.19, 1.0]
    rates = [[rate * 0.99, rate, rate * 1.01] for rate in 100 * np.cumprod([1, *gains])]
    found = judge_knee([1, 2, 4, 8, 16, 32], rates, [0.0] * 6)
    assert found.knee in (3, 4)


def test_the_knee_says_how_far_repeats_tell_it():
    gains = [1.6, 1.25, 1.2, 1.15, 1.1, 1.0]
    middle = 100 * np.cumprod([1, *gains])
    sizes = [1, 2, 4, 8, 16, 32, 64]
    sure = judge_knee(sizes, [[rate * 0.999, rate, rate * 1.001] for rate in middle], [0.0] * 7)
    vague = judge_knee(sizes, [[rate * 0.95, rate, rate * 1.05] for rate in middle], [0.0] * 7)
    assert sure.text == f"knee {sure.knee}"
    assert vague.low < sure.knee < vague.high
    assert vague.text == f"knee {vague.knee} ({vague.low} to {vague.high}, by the repeats)"


def test_a_curve_that_has_not_bent_has_no_knee():
    assert knee(SIZES, SIZES) is None


def test_a_curve_that_never_rises_has_its_knee_at_the_first_size():
    assert knee(SIZES, [100.0] * len(SIZES)) == 1


def test_the_segmented_fit_tells_a_bend_from_a_line():
    bent = segmented_fit(SIZES, [min(n, 16) * 10.0 for n in SIZES])
    assert bent.at == pytest.approx(16, rel=0.05)
    assert bent.head == pytest.approx(10, rel=0.02)
    assert bent.ratio == pytest.approx(0, abs=0.01)
    assert segmented_fit(SIZES, [3.0 * n for n in SIZES]).ratio == pytest.approx(1, abs=0.01)
    assert segmented_fit([1, 2, 4], [1, 2, 3]) is None


def test_a_slope_is_not_moved_by_an_outlier():
    x = list(range(30))
    y = [5 + 0.5 * v for v in x]
    y[7] = 1000.0
    found = theil_sen(x, y)
    assert found.estimate == pytest.approx(0.5)
    assert found.low <= 0.5 <= found.high < 0.6
    assert theil_sen([1, 1, 1], [1, 2, 3]) is None
    assert theil_sen([1, 2], [1, 2]) is None
