"""What a request asks of its logits, against the definitions in plain numbers.

The kind: every field of a request body that moves or masks logits (vLLM's and OpenAI's). Each
changes its own row, in vLLM's order, and nobody else's.
"""

import math

import pytest
import torch

from engine.errors import RequestError
from engine.execution.sampler import Sampler, draw
from engine.request import Request, SamplingParams
from engine.stream import Stream


def request(prompt=(), output=(), **params):
    made = Request("r1", SamplingParams(**params), Stream("r"), number=1)
    made.prompt_ids, made.output_ids = list(prompt), list(output)
    return made


def best(logits, *requests, eos=()):
    rows = torch.tensor([list(map(float, logits))] * len(requests))
    return Sampler(frozenset(eos)).sample(rows, list(requests))


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ({}, 4),
        ({"allowed_token_ids": (1, 2)}, 2),
        ({"bad_words": ((4,),)}, 3),
        ({"bad_words": ((4,), (3,))}, 2),
        ({"bad_words": ((1, 4),)}, 3),
        ({"bad_words": ((2, 1, 4),)}, 4),
        ({"bad_words": ((1, 1, 1, 1, 4),)}, 4),
        ({"logit_bias": ((0, 100.0),)}, 0),
        ({"logit_bias": ((4, -1.5), (1, 0.5))}, 3),
        ({"allowed_token_ids": (0, 1), "logit_bias": ((4, 100.0), (0, 2.0))}, 0),
        ({"allowed_token_ids": (2,), "bad_words": ((2,),)}, 2),
        ({"presence_penalty": 2.0}, 4),
        ({"frequency_penalty": 2.0}, 4),
        ({"repetition_penalty": 2.5}, 2),
        ({"min_tokens": 4}, 3),
        ({"min_tokens": 3}, 4),
        ({"min_tokens": 4, "allowed_token_ids": (4,)}, 4),
        ({"min_tokens": 4, "stop_token_ids": (3, 999)}, 2),
    ],
)
def test_what_is_asked_decides(given, token):
    asked = request(prompt=[4], output=[1, 3, 1], **given)
    assert best(range(5), asked, eos=[4]) == [token]


def test_penalties_are_the_published_formulas():
    made = request([0, 1], [1, 2, 2], repetition_penalty=2.0, frequency_penalty=0.5,
                   presence_penalty=0.25)  # fmt: skip
    row = torch.tensor([[2.0, -1.0, 4.0, 3.0]])
    Sampler(frozenset()).sample(row, [made])
    assert row.tolist() == [[1.0, -2.0 - 0.75, 2.0 - 1.25, 3.0]]


def test_a_negative_penalty_invites():
    assert best([1, 0, 0], request(output=[1], presence_penalty=-2.0)) == [1]


def test_neighbours_ask_in_vain():
    rows = [request(), request(bad_words=((4,),)), request(logit_bias=((0, 50.0),)), request()]
    assert best(range(5), *rows) == [4, 3, 0, 4]


def test_a_row_that_is_not_finite_stays_so_whatever_is_asked():
    row = torch.zeros(1, 5)
    row[0, 4] = torch.nan
    assert Sampler(frozenset()).sample(row, [request(allowed_token_ids=(1,))]) == [None]


def test_log_probabilities_are_those_before_anything_is_asked():
    made = request(logprobs=1, bad_words=((4,),), logit_bias=((0, 9.0),))
    best([0, 0, 0, 0, 1], made)
    assert made.logprobs[0].token == 0
    assert made.logprobs[0].logprob == pytest.approx(-math.log(4 + math.e))
    assert made.logprobs[0].top[0][0] == 4


@pytest.mark.parametrize("more", [{}, {"top_k": 3}, {"top_p": 0.9}])
def test_min_p_keeps_what_is_likely_enough(more):
    params = SamplingParams(temperature=1.0, min_p=0.5, **more)
    logits = torch.tensor([[0.0, -0.6, -0.8, -5.0]]).repeat(1000, 1)
    uniform = [(i + 0.5) / 1000 for i in range(1000)]
    tokens = draw(logits, [params] * 1000, uniform)
    counts = torch.bincount(tokens, minlength=4).tolist()
    share = 1 / (1 + math.exp(-0.6))
    assert counts[2:] == [0, 0] and abs(counts[0] / 1000 - share) < 0.01


@pytest.mark.parametrize(
    "given",
    [
        {"min_p": 1.1}, {"min_p": -0.1}, {"presence_penalty": 2.5}, {"frequency_penalty": -3},
        {"repetition_penalty": 0}, {"logit_bias": ((-1, 0.0),)}, {"logit_bias": ((1, 101.0),)},
        {"logit_bias": ((1, math.nan),)}, {"allowed_token_ids": (-1,)}, {"bad_words": ((),)},
        {"bad_words": ((True,),)},
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_named(given):
    with pytest.raises(RequestError, match=next(iter(given))):
        SamplingParams(**given)


@pytest.mark.parametrize(
    "given",
    [{"logit_bias": ((5, 1.0),)}, {"allowed_token_ids": (1, 5)}, {"bad_words": ((1,), (2, 5))}],
)
def test_a_token_that_the_vocabulary_lacks_is_named(given):
    assert SamplingParams(**given).beyond(5) == next(iter(given))
    assert SamplingParams(**given).beyond(6) is None
