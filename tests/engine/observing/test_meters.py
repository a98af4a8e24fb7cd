"""Meters only grow; buckets are what a plain count gives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.observing.meters import TTFT_S, Histogram
from engine.request import FinishReason, SamplingParams
from engines import answers, tiny_engine


@given(st.lists(st.floats(0, 5000) | st.sampled_from(TTFT_S), max_size=40))
def test_buckets_are_counts_of_values_up_to_their_edge(values):
    meter = Histogram(TTFT_S)
    for value in values:
        meter.add(value)
    buckets, total = meter.read()
    assert [edge for edge, _ in buckets] == [*TTFT_S, float("inf")]
    assert all(count == sum(v <= edge for v in values) for edge, count in buckets)
    assert np.isclose(total, sum(values))


def test_what_was_served_is_counted_and_a_reset_takes_nothing_back():
    engine = tiny_engine()
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    answers(engine, [engine.submit([5 + i] * 10, params) for i in range(3)])
    engine.submit([], params)
    cancelled = engine.submit([9] * 5, params)
    engine.cancel(cancelled.request_id)
    answers(engine, [cancelled])
    engine.reset()
    answers(engine, [engine.submit([7] * 10, params)])
    meters = engine.telemetry.meters
    assert meters.totals["prompt_tokens"] == 40
    assert meters.totals["output_tokens"] == 16
    assert meters.totals["requests"] == 6
    assert meters.finished == {"length": 4, "rejected": 1, "cancelled": 1}
    assert engine.telemetry.finished == {"length": 1}
    for meter, count in ((meters.ttft, 4), (meters.e2e, 4), (meters.itl, 12), (meters.queue, 4)):
        buckets, total = meter.read()
        assert buckets[-1][1] == count
        assert total >= 0
    assert meters.step_tokens.read()[1] == 40 + 12
    assert FinishReason.LENGTH in meters.finished


def test_preempted_requests_count_once():
    engine = tiny_engine(pages=8)
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    answers(engine, [engine.submit([5 + i] * 20, params) for i in range(4)])
    meters = engine.telemetry.meters
    assert meters.totals["preemptions"] > 0
    assert meters.totals["prompt_tokens"] == 80
    assert meters.ttft.read()[0][-1][1] == 4
    assert meters.preemptions.read()[1] == meters.totals["preemptions"]
