"""Prompts: exact lengths, nothing in common unless asked, the same for the same seed."""

import itertools

import numpy as np
import pytest

from builders import tiny_tokenizer
from playbooks.load.prompts import WORDS, TextPrompts, TokenPrompts, derived_seed, plain_ids
from playbooks.load.workload import make_spec

MAKERS = {
    "ids": lambda seed=0, shared=0: TokenPrompts(np.arange(50, 150), seed, shared),
    "text": lambda seed=0, shared=0: TextPrompts(seed, shared),
}


def parts(prompt):
    return prompt.split() if isinstance(prompt, str) else prompt


@pytest.fixture(params=MAKERS)
def maker(request):
    return MAKERS[request.param]


@pytest.mark.parametrize("tokens", [1, 2, 17, 3000])
def test_lengths_are_exact(maker, tokens):
    assert len(parts(maker().make(0, tokens))) == tokens
    assert len(parts(maker(shared=16).make(0, tokens))) == tokens


def test_no_two_prompts_begin_alike(maker):
    prompts = [tuple(parts(maker().make(i, 40))[:16]) for i in range(500)]
    assert len(set(prompts)) == 500


def test_a_shared_prefix_is_shared_and_the_rest_is_not(maker):
    prompts = [parts(maker(shared=32).make(i, 64)) for i in range(20)]
    assert len({tuple(p[:32]) for p in prompts}) == 1
    for one, two in itertools.combinations(prompts, 2):
        assert one[32:48] != two[32:48]


def test_a_prompt_shorter_than_the_shared_prefix_keeps_a_token_of_its_own(maker):
    assert parts(maker(shared=32).make(1, 5))[:4] == parts(maker(shared=32).make(2, 64))[:4]
    lasts = {parts(maker(shared=32).make(i, 5))[-1] for i in range(20)}
    assert len(lasts) > 5


def test_a_prompt_depends_on_seed_and_number_alone(maker):
    forward = [maker(seed=3).make(i, 20) for i in range(10)]
    one = maker(seed=3)
    assert [one.make(i, 20) for i in reversed(range(10))] == forward[::-1]
    assert maker(seed=4).make(0, 20) != forward[0]


def test_special_tokens_are_never_drawn():
    special = tiny_tokenizer().special_ids
    allowed = plain_ids(40, special | {99})
    assert sorted(allowed) == [i for i in range(40) if i not in special]
    drawn = set(TokenPrompts(allowed, 0).make(0, 5000))
    assert drawn == set(allowed.tolist())


def test_words_are_plain_and_different():
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.islower() and word.isalpha() for word in WORDS)


def test_without_a_seed_prompts_are_new_ones_and_times_and_lengths_are_not():
    one, other = (make_spec("closed:2", "fixed:20,4", requests=3, seed=None) for _ in range(2))
    assert one.seed == other.seed == 0
    assert one.words_seed != other.words_seed
    assert one.describe()["prompt_seed"] == one.words_seed
    given = make_spec("closed:2", "fixed:20,4", requests=3, seed=5)
    assert (given.seed, given.words_seed) == (5, 5)


def test_a_derived_seed_is_its_parts():
    assert derived_seed(1, 2, 3) == derived_seed(1, 2, 3)
    assert len({derived_seed(base, n, 0) for base in range(8) for n in range(8)}) == 64
