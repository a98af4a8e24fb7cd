"""Sampling against a plain recomputation of the distribution."""

import numpy as np
import pytest
import torch

from engine.execution import sampler
from engine.execution.sampler import Sampler, draw
from engine.request import Request, SamplingParams
from engine.stream import Stream


def request(number=1, outputs=0, **params):
    made = Request(f"r{number}", SamplingParams(**params), Stream("r"), number=number)
    made.output_ids = [5] * outputs
    return made


def kept(logits, params):
    """The distribution that temperature, top-k and top-p leave, in plain numpy."""
    x = np.asarray(logits, dtype=np.float64) / params.temperature
    probs = np.exp(x - x.max())
    probs /= probs.sum()
    order = np.argsort(-probs)
    if params.top_k:
        probs[order[params.top_k :]] = 0
        probs /= probs.sum()
    before = np.cumsum(probs[order]) - probs[order]
    probs[order[before >= params.top_p]] = 0
    return probs / probs.sum()


@pytest.mark.parametrize("width", [4, 64])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 0.5, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.6},
        {"temperature": 2.0, "top_p": 0.99},
        {"temperature": 1.3, "top_k": 12, "top_p": 0.8},
        {"temperature": 1.0, "top_k": 40, "top_p": 1.0},
    ],
)
def test_a_sweep_of_uniform_numbers_gives_the_distribution(monkeypatch, width, params):
    monkeypatch.setattr(sampler, "NUCLEUS_WIDTH", width)  # 4: the wide path is taken
    params = SamplingParams(**params)
    logits = torch.randn(64, generator=torch.Generator().manual_seed(3)) * 2
    n = 20_000
    uniform = [(i + 0.5) / n for i in range(n)]
    tokens = torch.cat(
        [draw(logits.repeat(1000, 1), [params] * 1000, uniform[i : i + 1000])
         for i in range(0, n, 1000)]
    )  # fmt: skip
    found = torch.bincount(tokens, minlength=64).numpy() / n
    np.testing.assert_allclose(found, kept(logits.numpy(), params), atol=2 / n)


def test_each_row_follows_its_own_parameters():
    logits = torch.zeros(3, 50)
    logits[:, 7] = 5.0
    rows = [request(1), request(2, temperature=1.0, top_k=1), request(3, temperature=50.0, seed=4)]
    solo = [
        Sampler(frozenset()).sample(logits[i : i + 1].clone(), [r])[0] for i, r in enumerate(rows)
    ]
    assert Sampler(frozenset()).sample(logits.clone(), rows) == solo
    assert solo[:2] == [7, 7]


def test_the_number_depends_on_seed_and_index_alone():
    one = Sampler(frozenset(), seed=0)
    assert one.uniform(request(1, seed=9), 0) == one.uniform(request(2, seed=9), 0)
    assert one.uniform(request(1, seed=9), 0) != one.uniform(request(1, seed=9), 1)
    assert one.uniform(request(1), 0) != one.uniform(request(2), 0)
    assert Sampler(frozenset(), seed=1).uniform(request(1), 0) != one.uniform(request(1), 0)


def test_the_numbers_are_uniform():
    source = Sampler(frozenset())
    drawn = np.array([source.uniform(request(1, seed=5), i) for i in range(4000)])
    assert 0 <= drawn.min() <= drawn.max() < 1
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 45  # chi², 19 degrees of freedom: p ≈ 0.001


def test_before_min_tokens_no_end_can_be_sampled():
    logits = torch.zeros(1, 10)
    logits[0, [2, 3, 4]] = 9.0
    logits[0, 6] = 1.0
    ends = request(min_tokens=1, stop_token_ids=(4, 99))
    assert Sampler(frozenset({2, 3})).sample(logits.clone(), [ends]) == [6]
    ends.output_ids.append(1)
    assert Sampler(frozenset({2, 3})).sample(logits.clone(), [ends]) == [2]


def test_rows_that_are_not_finite_have_no_token():
    logits = torch.zeros(3, 10)
    logits[1, 3] = torch.nan
    logits[2] = -torch.inf
    rows = [request(i) for i in range(3)]
    assert Sampler(frozenset()).sample(logits, rows) == [0, None, None]


@pytest.mark.parametrize("asked", [0, 1, 5])
def test_log_probabilities_are_the_models_own_whatever_is_drawn(asked):
    """Not those after temperature, top-k or min_tokens; and only of the rows that want them."""
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1)) * 3
    logits[1, 4] = 20.0
    rows = [
        request(1, temperature=2.0, top_k=10, seed=3, logprobs=asked),
        request(2, min_tokens=1, stop_token_ids=(4,), logprobs=asked),
        request(3),
    ]
    own = logits.double().log_softmax(-1)
    tokens = Sampler(frozenset()).sample(logits.clone(), rows)
    assert tokens == Sampler(frozenset()).sample(
        logits.clone(),
        [request(1, temperature=2.0, top_k=10, seed=3),
         request(2, min_tokens=1, stop_token_ids=(4,)), request(3)],
    )  # fmt: skip
    for row in (0, 1):
        (note,) = rows[row].logprobs
        assert note.token == tokens[row]
        assert note.logprob == pytest.approx(own[row, tokens[row]].item(), abs=1e-4)
        best = own[row].argsort(descending=True)[:asked].tolist()
        assert [token for token, _ in note.top] == best
        assert [value for _, value in note.top] == pytest.approx(own[row, best].tolist(), abs=1e-4)
    assert tokens[1] != 4
    assert rows[2].logprobs == []


def test_each_row_gets_as_many_log_probabilities_as_it_asked_for():
    rows = [request(1, logprobs=0), request(2, logprobs=3), request(3, logprobs=20)]
    Sampler(frozenset()).sample(torch.randn(3, 10), rows)
    assert [len(row.logprobs[0].top) for row in rows] == [0, 3, 10]  # the vocabulary has ten
