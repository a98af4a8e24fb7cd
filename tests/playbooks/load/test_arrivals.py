"""When requests arrive: rates, burstiness, seeds, and what is refused."""

import itertools

import numpy as np
import pytest

from engine.errors import ConfigError
from playbooks.load.arrivals import Closed, TraceArrivals, parse_arrivals
from playbooks.load.traces import Trace


def times(text, count=10_000, seed=0):
    """Seconds."""
    return np.array(list(itertools.islice(parse_arrivals(text).times(seed), count))) / 1e9


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("text", "rate", "cv"),
    [
        ("poisson:5", 5, 1),
        ("poisson:2000", 2000, 1),
        ("gamma:5,0.5", 5, 0.5),
        ("gamma:20,3", 20, 3),
        ("constant:8", 8, 0),
    ],
)
def test_arrivals_have_their_rate_and_burstiness(text, rate, cv, seed):
    gaps = np.diff(times(text, seed=seed))
    assert gaps.mean() * rate == pytest.approx(1, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-6)


def test_poisson_gaps_are_exponential_and_independent():
    gaps = np.diff(times("poisson:1"))
    for share in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(gaps, share) == pytest.approx(-np.log1p(-share), rel=0.03)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03


def test_a_ramp_moves_its_rate_evenly_and_stays_at_the_end():
    at = times("ramp:2-10/1000", 20_000)
    counts = [int(((at >= a) & (at < a + 100)).sum()) for a in range(0, 1400, 100)]
    expected = [(2 + 8 * (a + 50) / 1000) * 100 for a in range(0, 1000, 100)] + [1000] * 4
    assert counts == pytest.approx(expected, rel=0.12)


def test_a_ramp_may_start_at_nothing_and_go_down():
    up, down = times("ramp:0-4/100", 200), times("ramp:4-1/100", 250)
    assert (up < 50).sum() == pytest.approx(50, abs=15)
    assert (down < 50).sum() == pytest.approx(162, abs=25)


@pytest.mark.parametrize("text", ["poisson:3", "gamma:3,2", "ramp:1-2/10", "constant:4"])
def test_the_same_seed_gives_the_same_nanoseconds(text):
    arrivals = parse_arrivals(text)
    one, two, other = (list(itertools.islice(arrivals.times(seed), 2500)) for seed in (4, 4, 5))
    assert one == two
    assert one == sorted(one)
    assert (one != other) or text.startswith("constant")
    assert arrivals.label == text


def test_think_time_belongs_to_the_request():
    users = Closed(3, think_s=2.0)
    thought = np.array([users.think_ns(0, i) for i in range(4000)]) / 1e9
    assert thought.mean() == pytest.approx(2.0, rel=0.05)
    assert users.think_ns(0, 17) == users.think_ns(0, 17) != users.think_ns(1, 17)
    assert Closed(3).think_ns(0, 5) == 0


def test_a_replay_has_the_traces_gaps_times_the_scale(tmp_path):
    gaps = np.random.default_rng(0).gamma(0.2, 1, 3000).round(6)
    at = 17.5 + np.cumsum(gaps)
    path = tmp_path / "t.csv"
    rows = "\n".join(f"{t:.6f},M,5,6,11,x" for t in at)
    path.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + rows)
    replayed = np.array(list(TraceArrivals(Trace(path), 0.1).times(0))) / 1e9
    assert replayed[0] == 0
    assert replayed == pytest.approx((at - at[0]) * 0.1, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not known"),
        ("poisson", "requests per second"),
        ("poisson:0", "requests per second"),
        ("poisson:-1", "requests per second"),
        ("poisson:nan", "requests per second"),
        ("poisson:1e99", "requests per second"),
        ("poisson:1,2", "not known"),
        ("gamma:5", "not known"),
        ("gamma:5,0", "a CV"),
        ("ramp:1-2", "not known"),
        ("ramp:1-0/5", "requests per second"),
        ("ramp:1-2/0", "seconds"),
        ("closed:0", "users"),
        ("closed:1.5", "whole number"),
        ("closed:2,-1", "seconds to think"),
        ("burst:3", "not known"),
    ],
)
def test_a_bad_spec_gets_one_clear_line(text, why):
    with pytest.raises(ConfigError, match=why) as caught:
        parse_arrivals(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)
