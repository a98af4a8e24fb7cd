import numpy as np
import pytest

from engine.observing.telemetry import Ring, StepRecord, Telemetry, percentiles
from engine.request import FinishReason, Request, SamplingParams
from engine.simulated.clock import VirtualClock
from engine.stream import Stream


@pytest.mark.parametrize(
    ("n", "known"), [(0, ""), (1, "p50"), (9, "p50"), (10, "p50 p90"), (100, "p50 p90 p99")]
)
def test_percentiles_are_none_where_n_is_too_small(n, known):
    block = percentiles(np.arange(n, dtype=float))
    assert block.n == n
    assert [k for k in ("p50", "p90", "p99") if getattr(block, k) is not None] == known.split()


def test_percentiles_leave_out_what_never_happened():
    assert percentiles(np.array([1.0, np.nan, 3.0])).mean == 2.0


def test_a_ring_keeps_the_newest():
    ring = Ring(3, 2)
    for i in range(5):
        ring.append((float(i), i * 10.0))
    assert sorted(ring.since(0)[:, 1]) == [20.0, 30.0, 40.0]
    assert ring.since(4)[:, 1].tolist() == [40.0]
    assert len(Ring(3, 1).since(0)) == 0


def test_k39_repeating_events_are_one_line_a_minute_with_their_count():
    clock = VirtualClock(unix=1000.0)
    telemetry = Telemetry(clock)
    for _ in range(1000):
        telemetry.event("reject", "too long", limit=True)
    assert [e.count for e in telemetry.events] == [1]
    clock.advance(61 * 10**9)
    telemetry.event("reject", "too long", limit=True)
    assert [e.count for e in telemetry.events] == [1, 1000]


def finished(times, detokenize=0):
    arrival, received, tokenized, queued, scheduled, *tokens = times
    request = Request("r", SamplingParams(), Stream("r"))
    stamps = request.stamps
    stamps.arrival, stamps.received, stamps.queued = arrival, received, queued
    stamps.tokenize_start, stamps.tokenize_end = received, tokenized
    stamps.first_scheduled = scheduled
    stamps.finished = tokens[-1]
    stamps.tokens.extend(tokens)
    stamps.detokenize_ns = detokenize
    return request


def test_latencies_are_those_of_the_stamps():
    ms = 1_000_000
    request = finished([1 * ms, 2 * ms, 5 * ms, 6 * ms, 10 * ms, 30 * ms, 40 * ms, 70 * ms], 4 * ms)
    telemetry = Telemetry()
    telemetry.ended_with(request, FinishReason.LENGTH)
    latency = telemetry.latency(0.06)
    assert latency.ttft_ms.p50 == pytest.approx(29)
    assert latency.tpot_ms.p50 == pytest.approx(20)
    assert latency.e2e_ms.p50 == pytest.approx(69)
    assert telemetry.queue_wait(0.06).p50 == pytest.approx(4)
    assert request.stamps.itl_ms == [10, 30]
    shares = telemetry.stages(0.06)
    whole = 5 + 3 + 20 + 36 + 4
    assert shares.queue == pytest.approx(5 / whole)
    assert shares.tokenize == pytest.approx(3 / whole)
    assert shares.prefill == pytest.approx(20 / whole)
    assert shares.decode == pytest.approx(36 / whole)
    assert shares.detokenize == pytest.approx(4 / whole)


def test_cancelled_requests_count_and_do_not_enter_the_latencies():
    telemetry = Telemetry()
    telemetry.ended_with(finished([1, 1, 1, 1, 1, 1]), FinishReason.CANCELLED)
    assert telemetry.finished == {"cancelled": 1}
    assert telemetry.latency(0.0).ttft_ms.n == 0


def test_step_shares_split_the_forward_by_tokens():
    telemetry = Telemetry()
    telemetry.step(
        StepRecord(end=10**9, plan=10, forward=80, sample=10, prefill_tokens=30, decode_tokens=10)
    )
    shares = telemetry.step_shares(1.0)
    assert (shares.plan, shares.forward_prefill, shares.forward_decode) == (0.1, 0.6, 0.2)


def test_k10_k11_nothing_grows_with_the_number_of_requests():
    telemetry = Telemetry()
    sizes = []
    for i in range(3):
        for j in range(6000):
            telemetry.arrived(finished([1, 1, 1, 1, 1, 1]))
            telemetry.ended_with(finished([1, 1, 1, 1, 1, j + 1]), FinishReason.STOP)
            telemetry.step(StepRecord(end=j))
            telemetry.event("cap", str(i))
        sizes.append(
            {
                name: len(value)
                for name, value in vars(telemetry).items()
                if hasattr(value, "__len__")
            }
        )
    assert sizes[1] == sizes[2]
