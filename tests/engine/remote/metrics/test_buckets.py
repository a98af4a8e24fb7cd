"""Histograms merge by bucket, whatever the order; differences survive restarts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.remote.metrics.buckets import Buckets, merged
from engine.remote.metrics.numbers import Numbers, Pool

BOUNDS = (0.1, 0.3, 0.5, 1.0, 2.0, 5.0)


@st.composite
def buckets(draw):
    """Whole numbers, so that sums are exact in every order."""
    chosen = draw(st.lists(st.sampled_from(BOUNDS), unique=True, max_size=6).map(sorted))
    steps = draw(st.lists(st.integers(0, 1000), min_size=len(chosen) + 1, max_size=len(chosen) + 1))
    counts = tuple(float(n) for n in np.cumsum(steps))
    total = draw(st.none() | st.integers(0, 10_000).map(float))
    return Buckets((*chosen, math.inf), counts, total)


pools = st.builds(
    Pool,
    name=st.sampled_from(["engine 0", "engine 1"]),
    usage=st.floats(0, 1),
    pages=st.integers(1, 100_000).map(float),
)
counts = st.none() | st.integers(0, 10**9).map(float)
named = st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**9).map(float))
numbers = st.builds(
    Numbers,
    models=st.frozensets(st.sampled_from("xy")),
    running=counts,
    waiting=counts,
    cap=counts,
    pools=st.lists(pools, max_size=3).map(lambda p: tuple(sorted(p, key=repr))),
    totals=named,
    finished=named,
    rates=named,
    buckets=st.dictionaries(st.sampled_from(["ttft", "e2e"]), buckets()),
)


@given(buckets(), buckets(), buckets())
def test_merging_is_associative_and_commutative(a, b, c):
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(b) == b.merge(a)


@given(buckets(), buckets())
def test_merging_loses_no_observation(a, b):
    assert a.merge(b).count == a.count + b.count


@given(buckets(), buckets())
def test_the_difference_of_a_sum_is_what_was_added(a, b):
    grown = a.merge(b)
    assert grown.since(a.merge(Buckets((math.inf,), (0.0,), 0.0))).count == b.count


@given(buckets(), buckets())
def test_a_difference_is_never_negative(a, b):
    new = a.since(b)
    assert new.count >= 0 and all(n >= 0 for n in new.counts)
    assert new.sum is None or new.sum >= 0


@given(buckets(), st.floats(0.01, 0.99))
def test_a_quantile_lies_within_its_bucket(one, q):
    value = one.quantile(q)
    if value is None:
        return
    index = next(i for i, n in enumerate(one.counts) if n >= q * one.count and n > 0)
    low = one.bounds[index - 1] if index else one.bounds[0]
    assert low <= value <= one.bounds[index]


def test_merged_quantiles_are_those_of_all_samples_and_no_mean_of_quantiles():
    rng = np.random.default_rng(0)
    fast, slow = rng.exponential(0.2, 900), rng.exponential(2.0, 100)

    def bucketed(samples):
        bounds = (*np.linspace(0.05, 10, 200), math.inf)
        return Buckets(bounds, tuple(float((samples <= b).sum()) for b in bounds), samples.sum())

    both = bucketed(fast).merge(bucketed(slow))
    everything = np.concatenate([fast, slow])
    for q in (0.5, 0.9, 0.99):
        assert both.quantile(q) == pytest.approx(np.quantile(everything, q), abs=0.05)
    mean_of_p50 = (bucketed(fast).quantile(0.5) + bucketed(slow).quantile(0.5)) / 2
    assert abs(both.quantile(0.5) - mean_of_p50) > 0.3


def test_a_percentile_beyond_the_last_bound_is_not_known():
    one = Buckets((1.0, 2.0, math.inf), (10.0, 20.0, 200.0), 900.0)
    p = one.percentiles_ms()
    assert (p.p50, p.p99) == (None, None)
    assert (p.ceiling, p.n) == (2000.0, 200)


@pytest.mark.parametrize(
    ("bounds", "counts"),
    [((), ()), ((1.0,), (1.0,)), ((2.0, 1.0, math.inf), (0.0, 0.0, 0.0)),
     ((1.0, math.inf), (3.0, 2.0)), ((1.0, math.inf), (math.nan, 2.0)), ((math.inf,), (-1.0,))],
)  # fmt: skip
def test_what_is_no_histogram_is_refused(bounds, counts):
    with pytest.raises(ValueError):
        Buckets(bounds, counts)


def test_nothing_merges_to_nothing():
    assert merged([]) is None


# --- whole engines -----------------------------------------------------------------------


@given(numbers, numbers, numbers)
def test_merging_engines_is_associative_and_commutative(a, b, c):
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(b) == b.merge(a)


@given(st.lists(numbers, min_size=1, max_size=5))
def test_no_share_ever_grows_above_one_or_leaves_its_parts(several):
    total = several[0]
    for one in several[1:]:
        total = total.merge(one)
    usages = [pool.usage for one in several for pool in one.pools]
    assert total.usage is None if not usages else min(usages) <= total.usage <= max(usages) <= 1


@given(numbers, numbers)
def test_what_one_part_does_not_know_the_whole_does_not(a, b):
    whole = a.merge(b)
    assert (whole.running is None) == (a.running is None or b.running is None)
    assert set(whole.totals) == set(a.totals) & set(b.totals)
