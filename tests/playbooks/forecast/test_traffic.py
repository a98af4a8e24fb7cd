"""Traffic as a stream: the same however time is cut, as many and as bursty as it says."""

import json
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest

from playbooks.forecast.bursts import GammaGaps, ResampledGaps
from playbooks.forecast.given import read_traffic
from playbooks.forecast.sizes import PresetSizes, SampledSizes, Size
from playbooks.forecast.traffic import Arrival, SlotTraffic, prompt_ids
from playbooks.load.mix import parse_mix

START = datetime(2026, 12, 24, tzinfo=UTC)
SIZES = PresetSizes(parse_mix("lognormal:100,50"))


def traffic(rates=(0.5, 2.0, 0.0, 1.0), bursts=None, seed=1, sizes=SIZES):
    return SlotTraffic(START, rates, 3600.0, bursts or GammaGaps(), [sizes] * len(rates), seed)


@pytest.mark.parametrize("bursts", [GammaGaps(), GammaGaps(3.0), ResampledGaps((0.0, 0.1, 2.5))])
def test_cuts_change_nothing(bursts):
    whole = list(traffic(bursts=bursts).arrivals(0, 14_400))
    assert len(whole) > 1000
    edges = np.sort(np.random.default_rng(0).uniform(0, 14_400, 40))
    pieces = [
        arrival
        for begin, end in pairwise([0.0, *edges.tolist(), 14_400.0])
        for arrival in traffic(bursts=bursts).arrivals(begin, end)
    ]
    assert pieces == whole
    assert [a.at_s for a in whole] == sorted(a.at_s for a in whole)


@pytest.mark.parametrize("bursts", [GammaGaps(3.0), ResampledGaps((0.0, 0.1, 2.5))])
def test_times_are_those_of_the_arrivals(bursts):
    day = traffic(bursts=bursts)
    for begin, end in ((0, 14_400), (1800.5, 1812.0), (3500, 7300), (7300, 9000), (9e4, 9.1e4)):
        assert day.times(begin, end).tolist() == [a.at_s for a in day.arrivals(begin, end)]


def test_seeds_differ_and_repeat():
    assert list(traffic(seed=1).arrivals(0, 999)) == list(traffic(seed=1).arrivals(0, 999))
    assert list(traffic(seed=1).arrivals(0, 999)) != list(traffic(seed=2).arrivals(0, 999))


def test_slots_have_their_rates():
    one = traffic()
    counts = [len(list(one.arrivals(i * 3600, (i + 1) * 3600))) for i in range(4)]
    assert counts[2] == 0
    for count, rate in zip(counts, one.rates, strict=True):
        assert abs(count - rate * 3600) <= 5 * (rate * 3600) ** 0.5
    assert [one.rate(at) for at in (-1, 0, 3600, 14_399, 99_999)] == [0.5, 0.5, 2.0, 1.0, 1.0]


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gamma_gaps_have_their_mean_and_their_spread_in_pieces_too(cv):
    gaps, rng = GammaGaps(cv), np.random.default_rng(0)
    counts = np.array([len(gaps.draw(rng, 50.0)) for _ in range(2000)])
    assert counts.mean() == pytest.approx(50, abs=4 * cv * (50 / 2000) ** 0.5 + 0.05)
    inside = np.concatenate([np.diff(gaps.draw(rng, 5000.0)) for _ in range(5)])
    assert inside.std() / inside.mean() == pytest.approx(cv, rel=0.08)


def test_resampled_windows_keep_the_rate_and_the_bursts():
    rng = np.random.default_rng(3)
    seen = np.cumsum(rng.gamma(1 / 9, 9, 5000))
    gaps = ResampledGaps(tuple((seen / seen[-1] * 4999).tolist()))
    counts = np.array([len(gaps.draw(rng, 80.0)) for _ in range(2000)])
    assert counts.mean() == pytest.approx(80, rel=0.05)
    assert gaps.dispersion == pytest.approx(9, rel=0.4)
    assert counts.var() / counts.mean() == pytest.approx(9, rel=0.4)
    assert len(gaps.draw(rng, 50_000.0)) == 50_000  # ten times round


def test_sampled_rows_come_in_their_order_and_go_round():
    rows = tuple(Size(n, 1) for n in range(1, 8))
    drawn = SampledSizes(rows, "seen").draw(np.random.default_rng(0), 40)
    assert len(drawn) == 40
    for one, after in pairwise(drawn):
        assert after.prompt_tokens == one.prompt_tokens % 7 + 1


def test_a_trace_comes_again_just_so(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 1000 * i, "input_length": 10 + i, "output_length": 3, "hash_ids": [i]}
            for i in range(601)]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    given = read_traffic(path, time_scale=0.5)
    assert given.seconds == pytest.approx(300, abs=0.01) and given.block_tokens == 512
    assert list(given.arrivals(10, 11)) == [
        Arrival(10.0, 30, 3, (20,)),
        Arrival(10.5, 31, 3, (21,)),
    ]
    assert len(list(given.arrivals(0, 1e9))) == 601
    assert given.rate(-5) == given.rate(150) == given.rate(300)
    assert given.rate(0) == pytest.approx(601 / 300, rel=1e-4)


def test_prompts_share_what_their_prefixes_share():
    one = prompt_ids(Arrival(0, 10, 1, (7, 8, 9)), 0, 4)
    other = prompt_ids(Arrival(0, 12, 1, (7, 8, 5)), 1, 4)
    assert len(one) == 10 and len(other) == 12
    assert one[:8] == other[:8] and one[8] != other[8]
    longer = prompt_ids(Arrival(0, 9, 1, (7,)), 2, 4)
    assert longer[:4] == one[:4] and set(longer[4:]).isdisjoint(one)
    assert set(prompt_ids(Arrival(0, 3, 1), 3, 4)).isdisjoint(longer)
