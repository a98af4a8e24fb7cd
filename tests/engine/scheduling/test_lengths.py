"""Learnt lengths of outputs: what a class is expected to say, and whether that holds."""

import random

import numpy as np
import pytest

from engine.request import FinishReason, Request, SamplingParams
from engine.scheduling.lengths import (
    BUCKET,
    BUCKETS,
    CERTAIN,
    CLASSES_MOST,
    EDGES,
    INTO,
    LONGEST,
    MARGIN_MOST,
    MEMORY,
    SCORED,
    SCORED_LEAST,
    OutputLengths,
)
from engine.stream import Stream

MOST = 4096


def asked(prompt=100, source="api", client="", **params):
    request = Request("r", SamplingParams(max_tokens=MOST, **params), Stream("r"))
    request.set_prompt([1] * prompt)
    request.source, request.client = source, client
    return request


def ended(lengths, output, reason=FinishReason.STOP, **kind):
    """A request of that kind starts, says so many tokens, and ends."""
    request = asked(**kind)
    request.length_class = lengths.class_of(request)
    lengths.expect(request, MOST)
    request.output_ids = [7] * output
    lengths.learn(request, reason, others_wait=True)
    return request


def share_of(lengths, at_least, **kind):
    row = lengths.class_of(asked(**kind))
    return float(lengths.reach(np.array([[row]]), np.array([[at_least]]))[0, 0])


def test_every_length_lies_in_its_bucket():
    lengths = np.array([0, 1, 2, 15, 16, 17, 18, 19, 100, 1000, LONGEST - 1])
    buckets = BUCKET[lengths]
    assert (EDGES[buckets] <= lengths).all()
    assert (lengths < EDGES[buckets + 1]).all()
    assert ((INTO >= 0) & (INTO < 1)).all()
    assert (np.diff(EDGES[1:]) / EDGES[1:-1])[16:].max() < 0.1
    assert BUCKET[LONGEST] == BUCKETS - 1


def test_an_output_may_be_longer_than_the_scale():
    lengths = OutputLengths()
    for _ in range(100):
        ended(lengths, LONGEST * 3)
    assert share_of(lengths, LONGEST * 2) > 0.8
    assert share_of(lengths, LONGEST - 1) > 0.8


def test_of_what_nothing_is_known_half_is_long():
    lengths = OutputLengths()
    assert share_of(lengths, 1) > 0.95
    assert share_of(lengths, 100) == pytest.approx(0.55, abs=0.05)
    assert share_of(lengths, 2000) == pytest.approx(0.25, abs=0.05)


def test_shares_are_those_of_what_ended():
    lengths, rng = OutputLengths(), random.Random(0)
    drawn = [max(1, round(rng.lognormvariate(5, 0.9))) for _ in range(MEMORY)]
    for output in drawn:
        ended(lengths, output)
    for at_least in (10, 40, 100, 150, 300, 600):
        really = sum(output >= at_least for output in drawn) / len(drawn)
        assert share_of(lengths, at_least) == pytest.approx(really, abs=0.06)
    row = lengths.class_of(asked())
    assert lengths.median(row) == pytest.approx(sorted(drawn)[len(drawn) // 2], rel=0.25)


def test_classes_differ_and_a_new_one_leans_on_its_sender():
    lengths = OutputLengths()
    for _ in range(60):
        ended(lengths, 10, prompt=100, source="chat")
        ended(lengths, 900, prompt=3000, source="chat")
        ended(lengths, 300, prompt=100, source="api", client="a")
    assert share_of(lengths, 50, prompt=100, source="chat") < 0.2
    assert share_of(lengths, 500, prompt=3000, source="chat") > 0.8
    assert share_of(lengths, 250, source="api", client="a") > 0.8
    new = share_of(lengths, 500, prompt=20, source="chat")
    assert new == pytest.approx(0.5, abs=0.1)
    assert share_of(lengths, 500, source="api", client="a", prompt=9) < 0.2


def test_what_is_new_displaces_what_is_old():
    lengths = OutputLengths()
    for _ in range(2 * MEMORY):
        ended(lengths, 20)
    for _ in range(MEMORY):
        ended(lengths, 500)
    assert 0.5 < share_of(lengths, 400) < 0.8
    for _ in range(2 * MEMORY):
        ended(lengths, 500)
    assert share_of(lengths, 400) > 0.9


@pytest.mark.parametrize(
    "reason", [FinishReason.CANCELLED, FinishReason.TIMEOUT, FinishReason.ERROR]
)
def test_what_was_broken_off_says_nothing(reason):
    lengths = OutputLengths()
    before = share_of(lengths, 100)
    ended(lengths, 3, reason)
    assert share_of(lengths, 100) == before
    assert lengths.coverage is None


def test_who_cannot_end_early_is_certain_and_teaches_nothing():
    lengths = OutputLengths()
    assert lengths.class_of(asked(ignore_eos=True)) == CERTAIN
    assert lengths.class_of(asked(ignore_eos=True, stop=("x",))) != CERTAIN
    assert lengths.class_of(asked(ignore_eos=True, stop_token_ids=(5,))) != CERTAIN
    assert share_of(lengths, 3000, ignore_eos=True) == 1.0
    assert ended(lengths, 50, ignore_eos=True).expected is None
    assert share_of(lengths, 3000, ignore_eos=True) == 1.0


def test_any_number_of_senders_takes_bounded_memory():
    lengths = OutputLengths()
    for number in range(2 * CLASSES_MOST):
        ended(lengths, 30, client=f"client {number}")
    assert len(lengths._reach) == len(lengths._counts) == CLASSES_MOST
    assert share_of(lengths, 60, client="one more") < 0.1


# --- does it hold? ---------------------------------------------------------------------------


def test_four_of_five_end_as_expected():
    lengths, rng = OutputLengths(), random.Random(1)
    for _ in range(600):
        ended(lengths, max(1, round(rng.lognormvariate(5, 0.8))))
    assert lengths.coverage == pytest.approx(0.82, abs=0.08)
    assert lengths.hold


def test_it_is_judged_only_after_enough_have_ended():
    lengths = OutputLengths()
    for _ in range(SCORED_LEAST - 1):
        ended(lengths, MOST - 1)
    assert lengths.coverage is None
    assert lengths.hold


def test_other_lengths_than_learnt_do_not_hold_until_they_are_learnt():
    lengths, rng = OutputLengths(), random.Random(2)

    def outputs(count, mean):
        for _ in range(count):
            ended(lengths, max(1, round(rng.gauss(mean, mean / 5))))
            yield lengths.hold

    assert all(outputs(300, 40))
    after = list(outputs(900, 600))
    fell = after.index(False)
    assert SCORED * 0.15 < fell < SCORED
    returned = fell + after[fell:].index(True)
    assert all(after[returned:])
    assert lengths.coverage >= 0.7


def test_the_margin_settles_where_one_in_a_hundred_is_preempted():
    lengths, request = OutputLengths(), asked()
    first = lengths.margin
    lengths.learn(request, FinishReason.STOP, others_wait=False)
    assert lengths.margin == first
    for _ in range(5):
        lengths.preempted()
        for _ in range(100):
            lengths.learn(request, FinishReason.STOP, others_wait=True)
    assert lengths.margin == pytest.approx(first)
    for _ in range(1000):
        lengths.learn(request, FinishReason.STOP, others_wait=True)
    assert lengths.margin == 0
    for _ in range(100):
        lengths.preempted()
    assert lengths.margin == MARGIN_MOST


def test_a_limit_of_tokens_bounds_what_is_expected():
    lengths = OutputLengths()
    for _ in range(100):
        ended(lengths, 800)
    request = asked()
    request.length_class = lengths.class_of(request)
    lengths.expect(request, 64)
    assert request.expected == (64, 64)
