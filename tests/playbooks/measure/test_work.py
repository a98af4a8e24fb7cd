"""Requests of exact mean, whatever the seed."""

import itertools

import numpy as np
import pytest

from engine.errors import ConfigError
from playbooks.load.mix import parse_mix
from playbooks.measure.work import EvenMix, EvenPreset


def mix(**changes):
    values = {
        "count": 40,
        "prompt_mean": 128,
        "output_mean": 64,
        "prompt_sigma": 0.985,
        "output_sigma": 0.86,
        "most_prompt": 640,
        "most_output": 384,
    }
    return EvenMix(**values | changes)


def drawn(one, seed, count=40):
    return np.array(list(itertools.islice(one.pairs(seed), count)))


@pytest.mark.parametrize("seed", [0, 1, 930])
@pytest.mark.parametrize("count", [16, 40])
def test_the_sample_has_the_mean_and_keeps_the_limits(seed, count):
    pairs = drawn(mix(count=count), seed, count)
    assert pairs.mean(axis=0) == pytest.approx([128, 64], abs=0.6)
    assert (pairs.max(axis=0) <= [640, 384]).all()
    assert pairs.min() >= 1
    assert np.std(np.log(pairs[:, 0])) == pytest.approx(0.985, rel=0.15)


def test_the_seed_says_the_order_and_nothing_else():
    same, other = drawn(mix(), 1), drawn(mix(), 2)
    assert (drawn(mix(), 1) == same).all()
    assert (same != other).any()
    assert (np.sort(same, axis=0) == np.sort(other, axis=0)).all()


def test_a_second_round_has_the_same_lengths():
    two = drawn(mix(), 5, 80)
    assert (np.sort(two[:40], axis=0) == np.sort(two[40:], axis=0)).all()


def test_rounds_of_a_preset_all_have_its_distribution():
    rounds = drawn(EvenPreset(parse_mix("chat*0.1"), 36), 3, 108).reshape(3, 36, 2)
    for one in rounds[1:]:
        assert (np.sort(one, axis=0) == np.sort(rounds[0], axis=0)).all()
    assert (rounds[0] != rounds[1]).any()
    assert rounds[0].mean(axis=0) == pytest.approx([115, 21], rel=0.05)
    half = drawn(EvenPreset(parse_mix("chat*0.1"), 36).scaled(0.5), 3, 36)
    assert half.mean(axis=0) == pytest.approx(rounds[0].mean(axis=0) / 2, rel=0.05)


def test_no_spread_and_a_scale():
    assert set(map(tuple, drawn(mix(prompt_sigma=0, output_sigma=0), 0))) == {(128, 64)}
    half = mix().scaled(0.5)
    assert (half.prompt_mean, half.output_mean, half.most_prompt) == (64, 32, 320)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prompt_mean": 700}, "prompt_mean"),
        ({"output_mean": 0}, "output_mean"),
        ({"output_sigma": -1}, "output_sigma"),
    ],
)
def test_impossible_lengths_are_refused(changes, why):
    with pytest.raises(ConfigError, match=why):
        mix(**changes)
