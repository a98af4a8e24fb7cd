"""The exact bootstrap against a drawn one, its known values, and what its bounds promise."""

import numpy as np
import pytest
from scipy.special import comb

from playbooks.statistics.quantile_ratio import least_for_bound, quantile_ratio


def drawn(base, other, q, low_alpha, high_alpha, draws=20_000):
    rng = np.random.default_rng(0)

    def quantiles(values):
        picked = rng.choice(values, (draws, len(values)))
        return np.quantile(picked, q, axis=1, method="inverted_cdf")

    ratios = quantiles(other) / quantiles(base)
    return np.quantile(ratios, [low_alpha, 1 - high_alpha])


@pytest.mark.parametrize(("q", "n", "m"), [(0.99, 400, 150), (0.9, 80, 40), (0.5, 31, 30)])
def test_it_is_what_drawing_gives_in_the_limit(q, n, m):
    rng = np.random.default_rng(1)
    base, other = rng.lognormal(3, 0.5, n), rng.lognormal(3.1, 0.5, m)
    found = quantile_ratio(base, other, q, 0.05, 0.05)
    low, high = drawn(base, other, q, 0.05, 0.05)
    assert found.low == pytest.approx(low, rel=0.03)
    assert found.high == pytest.approx(high, rel=0.03)
    assert found.n == min(n, m)


def test_the_median_of_three_by_hand():
    """The middle of three draws is the largest in 7 of 27 draws, and as often the smallest."""
    values, one = np.array([1.0, 2.0, 4.0]), np.ones(3)
    largest = (comb(3, 2) * 2 + 1) / 27
    assert quantile_ratio(one, values, 0.5, largest - 1e-6, largest - 1e-6).low == 1.0
    assert quantile_ratio(one, values, 0.5, largest + 1e-6, 0.1).low == 2.0
    assert quantile_ratio(one, values, 0.5, 0.1, largest - 1e-6).high == 4.0
    assert quantile_ratio(one, values, 0.5, 0.1, largest + 1e-6).high == 2.0


def test_equal_samples_have_a_ratio_of_one_and_scale_is_a_ratio():
    values = np.random.default_rng(2).lognormal(0, 1, 300)
    same = quantile_ratio(values, values, 0.99, 0.01, 0.05)
    assert same.estimate == 1.0
    assert same.low <= 1.0 <= same.high
    double = quantile_ratio(values, 2 * values, 0.99, 0.01, 0.05)
    assert double.low == pytest.approx(2 * same.low)
    assert double.high == pytest.approx(2 * same.high)


def test_a_smaller_alpha_never_narrows_it():
    rng = np.random.default_rng(3)
    base, other = rng.lognormal(0, 0.6, 500), rng.lognormal(0, 0.6, 200)
    lows = [quantile_ratio(base, other, 0.99, a, 0.05).low for a in (0.1, 0.01, 1e-3, 1e-5)]
    assert lows == sorted(lows, reverse=True)


def test_upper_bounds_hold_as_often_as_they_say():
    """One-sided 5 %, at the smallest n that has a bound at all."""
    n = least_for_bound(0.9, 0.05)
    assert (n, least_for_bound(0.99, 0.05)) == (29, 299)
    rng = np.random.default_rng(4)
    below = sum(
        quantile_ratio(rng.exponential(1, 400), rng.exponential(1, 60), 0.9, 0.01, 0.05).high < 1
        for _ in range(400)
    )
    assert below / 400 <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5 + 0.03
