import math

import numpy as np
import pytest
import torch

from playbooks.quality.metrics import Scores, compare, mean_interval, summarise

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.1, 0.2]])


def scores(n, **columns):
    base = {name: np.zeros(n) for name in ("kld", "agree", "dp", "nll_base", "nll")}
    return Scores(**base | {name: np.asarray(x, dtype=float) for name, x in columns.items()})


def test_a_distribution_does_not_differ_from_itself():
    same = compare(LOGITS, LOGITS.clone(), torch.tensor([0, 2]))
    assert same.kld.tolist() == [0.0, 0.0] and same.dp.tolist() == [0.0, 0.0]
    assert same.agree.tolist() == [1.0, 1.0]


def test_the_divergence_is_the_textbook_sum():
    other = LOGITS + torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0]])
    p, q = LOGITS.double().softmax(-1).numpy(), other.double().softmax(-1).numpy()
    got = compare(LOGITS, other, torch.tensor([1, 0]))
    np.testing.assert_allclose(got.kld, (p * np.log(p / q)).sum(-1), atol=1e-6)
    np.testing.assert_allclose(got.dp, [q[0, 1] - p[0, 1], q[1, 0] - p[1, 0]], atol=1e-6)
    np.testing.assert_allclose(got.nll, [-math.log(q[0, 1]), -math.log(q[1, 0])], atol=1e-6)
    assert got.agree.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("n", [1, 63, 64, 65, 130])
def test_every_position_is_scored_whatever_the_block(n):
    random = torch.Generator().manual_seed(n)
    base, other = (torch.randn(n, 7, generator=random) for _ in range(2))
    following = torch.randint(0, 7, (n,), generator=random)
    whole = compare(base, other, following)
    single = Scores.join([compare(base[i : i + 1], other[i : i + 1], following[i : i + 1])
                          for i in range(n)])  # fmt: skip
    assert len(whole) == n
    np.testing.assert_allclose(whole.kld, single.kld, rtol=1e-5)


def test_the_summary_of_known_numbers():
    got = summarise(
        scores(200, kld=np.arange(200) / 100, agree=np.arange(200) >= 3, dp=[0.01, -0.01] * 100,
               nll_base=np.ones(200), nll=np.full(200, 1.1))
    )  # fmt: skip
    assert got["mean_kld"] == pytest.approx(0.995)
    assert got["p99_kld"] == pytest.approx(np.quantile(np.arange(200) / 100, 0.99))
    assert got["top1_agreement"] == pytest.approx(197 / 200)
    assert got["rms_dp"] == pytest.approx(0.01)
    assert got["ppl_change"] == pytest.approx(math.exp(0.1) - 1)


def test_too_few_positions_have_no_99_percent_quantile():
    assert summarise(scores(99))["p99_kld"] is None
    assert summarise(scores(100))["p99_kld"] == 0.0
    assert set(summarise(scores(0)).values()) == {None}


def test_the_interval_covers_the_mean_and_is_reproducible():
    random = np.random.default_rng(0)
    cases = [random.exponential(1.0, 30) for _ in range(20)]
    low, high = mean_interval(cases)
    assert low < np.concatenate(cases).mean() < high
    assert (low, high) == mean_interval(cases)
    assert mean_interval(cases[:1]) is None


def test_the_interval_draws_whole_cases():
    """Positions of one text go together: two texts that differ leave it as wide as they are."""
    low, high = mean_interval([np.zeros(500), np.ones(500)])
    assert (low, high) == (0.0, 1.0)
