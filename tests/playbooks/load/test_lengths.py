import itertools

import numpy as np
import pytest

from engine.errors import ConfigError
from playbooks.load.lengths import MOST, Empirical, Fixed, Lengths, Lognormal, Uniform
from playbooks.load.mix import PRESETS, parse_mix


@pytest.mark.parametrize(("mean", "sigma"), [(96, 0.8), (512, 1.0), (64, 0.0)])
def test_a_spread_of_a_few_has_the_mean_whatever_the_seed(mean, sigma):
    lengths = Lognormal.with_mean(mean, sigma)
    few = [lengths.spread(np.random.default_rng(seed), 48) for seed in range(3)]
    assert few[0] != few[1] or sigma == 0
    assert sorted(few[0]) == sorted(few[1]) == sorted(few[2])
    assert np.mean(few[0]) == pytest.approx(mean, rel=0.08)


def pairs(mix, count=10_000, seed=0):
    return np.array(list(itertools.islice(mix.pairs(seed), count)))


PUBLISHED = {
    "chat": ((1020, 2734.5, 4142, 1154.7), (129, 424, 601, 211.1)),
    "code": ((1469, 5188, 7436, 2047.8), (13, 55, 251, 27.9)),
}
"""p50, p90, p99 and mean of prompts and outputs in the traces that the presets come from."""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_quantiles_and_the_mean_of_their_traces(name, seed):
    drawn = pairs(PRESETS[name], seed=seed)
    for column, (p50, p90, p99, mean) in enumerate(PUBLISHED[name]):
        lengths = drawn[:, column]
        assert np.percentile(lengths, [50, 90, 99]) == pytest.approx([p50, p90, p99], rel=0.02)
        assert lengths.mean() == pytest.approx(mean, rel=0.03)


def test_observed_lengths_come_back_as_they_were():
    seen = np.random.default_rng(3).lognormal(5, 1.4, 30_000).round().astype(int) + 1
    lengths = Empirical.of_counts(np.bincount(seen))
    drawn = lengths.draw(np.random.default_rng(0), 10_000)
    for p in (1, 50, 90, 99):
        assert np.percentile(drawn, p) == pytest.approx(np.percentile(seen, p), rel=0.03)
    assert min(drawn) >= seen.min()
    assert max(drawn) <= seen.max()


def test_a_single_observed_length_is_the_only_one():
    assert set(Empirical.of_counts(np.bincount([7])).draw(np.random.default_rng(0), 50)) == {7}


def test_uniform_lengths_use_both_ends_and_all_between_alike():
    drawn = Uniform(3, 6).draw(np.random.default_rng(0), 4000)
    assert [drawn.count(n) for n in (3, 4, 5, 6)] == [1000] * 4


@pytest.mark.parametrize(
    "lengths", [Lognormal(3.0, 2.0), Uniform(1, 5), Fixed(3), Empirical((0, 1), (1, 9))]
)
def test_lengths_are_whole_tokens_within_bounds(lengths: Lengths):
    drawn = lengths.scaled(0.01).draw(np.random.default_rng(1), 100)
    assert set(map(type, drawn)) == {int}
    assert min(drawn) == 1
    assert max(lengths.scaled(1e9).draw(np.random.default_rng(1), 100)) == MOST


def test_lognormal_lengths_stay_within_their_bounds():
    drawn = Lognormal(3.0, 2.0, least=2, most=100).draw(np.random.default_rng(1), 5000)
    assert (min(drawn), max(drawn)) == (2, 100)


def test_the_same_seed_gives_the_same_lengths_and_another_seed_others():
    one, two, other = (pairs(PRESETS["code"], 50, seed).tolist() for seed in (7, 7, 8))
    assert one == two != other


def test_the_first_few_of_many_are_the_few():
    assert pairs(PRESETS["chat"], 20).tolist() == pairs(PRESETS["chat"], 3000)[:20].tolist()


@pytest.mark.parametrize(
    ("text", "prompt", "output"),
    [
        ("chat*0.1", 102, 12.9),
        ("code*2", 2938, 26),
        ("uniform:10-20,3-5", 15, 4),
        ("fixed:512,256", 512, 256),
        ("fixed:512,256*0.5", 256, 128),
        ("lognormal:100,50,0", 100, 50),
    ],
)
def test_specs_of_lengths(text, prompt, output):
    mix = parse_mix(text)
    assert mix.label == text
    medians = np.median(pairs(mix), axis=0)
    assert medians == pytest.approx([prompt, output], rel=0.04)


def test_a_lognormal_spec_gives_means():
    assert pairs(parse_mix("lognormal:512,256")).mean(axis=0) == pytest.approx([512, 256], rel=0.02)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("chart", "not known"),
        ("", "not known"),
        ("chat*x", "a factor"),
        ("chat*0", "a factor"),
        ("chat*nan", "a factor"),
        ("fixed:512", "expected fixed:PROMPT,OUTPUT"),
        ("fixed:0,5", "a length in tokens"),
        ("fixed:5,inf", "a length in tokens"),
        ("lognormal:512", "expected lognormal:"),
        ("lognormal:512,256,-1", "a spread"),
        ("uniform:1-2", "expected uniform:"),
        ("uniform:9-2,1-2", "from low to high"),
        ("gauss:1,2", "not known"),
        ("/no/such/file.csv", "not known"),
    ],
)
def test_a_bad_spec_gets_one_clear_line(text, why):
    with pytest.raises(ConfigError, match=why) as caught:
        parse_mix(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_file_is_a_spec_too(tmp_path):
    path = tmp_path / "own.csv"
    rows = "\n".join(f"{i},M,{100 + i % 3},20,0,x" for i in range(300))
    path.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + rows)
    drawn = pairs(parse_mix(f"{path}*2"), 3000)
    assert set(drawn[:, 1]) == {40}
    assert np.percentile(drawn[:, 0], [1, 50, 99]) == pytest.approx([200, 202, 204], abs=1)
