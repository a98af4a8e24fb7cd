import numpy as np
import pytest

from playbooks.load.lengths import PRESETS, Lognormal


@pytest.mark.parametrize(("mean", "sigma"), [(96, 0.8), (512, 1.0), (64, 0.0)])
def test_a_spread_of_a_few_has_the_mean_whatever_the_seed(mean, sigma):
    lengths = Lognormal.with_mean(mean, sigma)
    few = [lengths.spread(np.random.default_rng(seed), 48) for seed in range(3)]
    assert few[0] != few[1] or sigma == 0
    assert sorted(few[0]) == sorted(few[1]) == sorted(few[2])
    assert np.mean(few[0]) == pytest.approx(mean, rel=0.08)


def test_draws_have_the_distributions_mean_and_quantiles():
    drawn = PRESETS["chat"].output.draw(np.random.default_rng(0), 20_000)
    assert np.median(drawn) == pytest.approx(np.exp(5.02), rel=0.03)
    assert np.percentile(drawn, 90) == pytest.approx(np.exp(5.02 + 1.2816 * 0.86), rel=0.04)


def test_the_same_seed_gives_the_same_lengths():
    one, two = (PRESETS["code"].prompt.draw(np.random.default_rng(7), 50) for _ in range(2))
    assert one == two


def test_lengths_stay_within_their_bounds():
    lengths = Lognormal(3.0, 2.0, least=2, most=100)
    drawn = lengths.draw(np.random.default_rng(1), 5000)
    assert (min(drawn), max(drawn)) == (2, 100)


def test_scaling_scales_the_median():
    assert np.exp(PRESETS["chat"].scaled(0.1).prompt.mu) == pytest.approx(np.exp(6.63) * 0.1)
