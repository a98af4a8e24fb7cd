"""Rates and windows between scrapes; restarts give no negative rate and no spike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.remote.adapters import canonical, recognise
from engine.remote.metrics.metrics_page import parse
from engine.remote.metrics.scrape import Scrape
from engine.remote.tracker import LATENCY_S, RATE_S, Tracker
from remote_pages import histogram
from remote_stub import page


def vllm(tokens=0.0, stop=0, running=0, waiting=0, started=100.0, ttft=None, engine="0"):
    """A page with these numbers, read."""
    labels = f'engine="{engine}",model_name="m"'
    lines = [
        f"vllm:generation_tokens_total{{{labels}}} {tokens}",
        f"vllm:num_requests_running{{{labels}}} {running}",
        f"vllm:num_requests_waiting{{{labels}}} {waiting}",
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {stop}',
    ]
    if started is not None:
        lines.append(f"process_start_time_seconds {started}")
    if ttft is not None:
        lines.append(histogram("vllm:time_to_first_token_seconds", labels, ttft, 0.0))
    return read(("\n".join(lines) + "\n").encode())


def read(body):
    found = parse(body, canonical)
    return recognise(found).read(found)


def test_a_share_of_several_ranks_is_not_added_up():
    lines = [
        f'sglang:{name}{{dp_rank="{rank}",model_name="m"}} 0.25'
        for name in ("cache_hit_rate", "gen_throughput")
        for rank in "01"
    ]
    assert read(("\n".join(lines) + "\n").encode()).gauges == {"output_tok_s": 0.5}
    assert read(f"{lines[0]}\n".encode()).gauges == {"hit_ratio": 0.25}


def test_one_scrape_knows_totals_and_no_rates():
    numbers = Tracker().push(vllm(tokens=100), 0.0)
    assert numbers.totals["output_tokens"] == 100
    assert numbers.rates == {}


def test_a_rate_is_what_was_added_over_the_time_between():
    tracker = Tracker()
    tracker.push(vllm(tokens=100), 0.0)
    assert tracker.push(vllm(tokens=150), 2.0).rates["output_tokens"] == 25.0
    assert tracker.push(vllm(tokens=150), 4.0).rates["output_tokens"] == 12.5


def test_a_rate_looks_back_ten_seconds():
    tracker = Tracker()
    for t in range(60):
        numbers = tracker.push(vllm(tokens=1000 if t < 30 else 1000 + 10 * (t - 30)), float(t))
    assert RATE_S == 10.0 and numbers.rates["output_tokens"] == 10.0


def test_arrivals_are_what_ended_and_what_there_is_more_of():
    tracker = Tracker()
    tracker.push(vllm(stop=10, running=4, waiting=2), 0.0)
    numbers = tracker.push(vllm(stop=16, running=5, waiting=9), 2.0)
    assert numbers.rates["finished"] == 3.0
    assert numbers.rates["arrivals"] == (6 + 14 - 6) / 2


def test_a_restart_counts_from_zero():
    tracker = Tracker()
    tracker.push(vllm(tokens=10_000, stop=50, running=3), 0.0)
    numbers = tracker.push(vllm(tokens=40, stop=1, running=1, started=500.0), 2.0)
    assert numbers.rates["output_tokens"] == 20.0
    assert numbers.rates["finished"] == 0.5
    assert "arrivals" not in numbers.rates  # who was in the engine when it fell is not known
    assert tracker.restarts == 1


def test_a_restart_that_has_overtaken_the_old_count_is_seen_by_the_start_of_the_process():
    tracker = Tracker()
    tracker.push(vllm(tokens=10), 0.0)
    assert tracker.push(vllm(tokens=30, started=500.0), 2.0).rates["output_tokens"] == 15.0
    assert tracker.restarts == 1


def test_one_counter_that_fell_restarts_its_companions_and_no_other_engine():
    def both(a, b, stop):
        left, right = (
            vllm(tokens=a, stop=stop, started=None),
            vllm(tokens=b, engine="1", started=None),
        )
        for name in ("counters", "finished"):
            for key, series in getattr(right, name).items():
                getattr(left, name)[key].update(series)
        return left

    tracker = Tracker()
    tracker.push(both(1000, 5000, stop=3), 0.0)
    # Engine 0 began again: its tokens fell, its ended requests have grown past the old count.
    numbers = tracker.push(both(20, 5100, stop=8), 10.0)
    assert numbers.rates["output_tokens"] == (20 + 100) / 10
    assert numbers.rates["finished"] == 0.8


def test_a_series_that_was_left_out_once_is_no_new_one():
    tracker = Tracker()
    tracker.push(vllm(tokens=1000), 0.0)
    without = vllm()
    del without.counters["output_tokens"]
    tracker.push(without, 1.0)
    numbers = tracker.push(vllm(tokens=1010), 2.0)
    assert numbers.rates.get("output_tokens", 0.0) <= 10.0
    assert numbers.totals["output_tokens"] == 1010


def test_percentiles_are_of_the_last_minute():
    tracker = Tracker()
    old = {"1": 0, "10": 100, "+Inf": 100}
    numbers = tracker.push(vllm(ttft=old), 0.0)
    assert numbers.buckets["ttft"].count == 100  # one look knows only the engine's life
    numbers = tracker.push(vllm(ttft={"1": 40, "10": 140, "+Inf": 140}), 1.0)
    assert numbers.buckets["ttft"].counts == (40.0, 40.0, 40.0)  # all new ones were fast
    now = 1.0
    while now < LATENCY_S + 5:
        now += 1.0
        numbers = tracker.push(vllm(ttft={"1": 40, "10": 150, "+Inf": 150}), now)
    assert numbers.buckets["ttft"].counts == (0.0, 10.0, 10.0)
    numbers = tracker.push(vllm(ttft={"1": 40, "10": 150, "+Inf": 150}), now + 100)
    assert numbers.buckets["ttft"].count == 10  # nothing newer: the last that was known


def test_a_restarted_histogram_counts_from_zero():
    tracker = Tracker()
    tracker.push(vllm(ttft={"1": 50, "10": 100, "+Inf": 100}), 0.0)
    numbers = tracker.push(vllm(ttft={"1": 1, "10": 3, "+Inf": 3}, started=900.0), 1.0)
    assert numbers.buckets["ttft"].counts == (1.0, 3.0, 3.0)


def test_between_two_real_scrapes():
    tracker = Tracker()
    tracker.push(read(page("vllm/busy")), 0.0)
    numbers = tracker.push(read(page("vllm/after")), 10.0)
    assert numbers.rates["output_tokens"] == pytest.approx((600 - 177) / 10)
    assert numbers.rates["prompt_tokens"] == pytest.approx((4361 - 1828) / 10)
    assert numbers.rates["finished"] == pytest.approx(24 / 10)
    assert numbers.rates["arrivals"] == 0.0  # 24 ended, 24 fewer are inside
    ttft = numbers.buckets["ttft"]
    assert ttft.count == 13
    assert ttft.at((7.5, 10.0, 20.0)) == (0.0, 5.0, 13.0)


def test_llamacpp_rates_come_from_counters_whatever_its_gauges_say():
    tracker = Tracker()
    body = page("llamacpp/busy")
    tracker.push(read(body), 0.0)
    later = body.replace(b"tokens_predicted_total 2059", b"tokens_predicted_total 2159")
    later = later.replace(b"n_decode_total 206", b"n_decode_total 211")
    numbers = tracker.push(read(later), 4.0)
    assert numbers.rates["output_tokens"] == 25.0
    assert numbers.rates["steps"] == 1.25


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.01, 100)), min_size=2, max_size=20))
def test_no_sequence_of_counts_gives_a_negative_rate(steps):
    tracker, now, total = Tracker(), 0.0, 0.0
    for count, seconds in steps:
        now += seconds
        numbers = tracker.push(Scrape(counters={"x": {(): float(count)}}), now)
        assert all(rate >= 0 for rate in numbers.rates.values())
        assert numbers.totals["x"] >= total
        total = numbers.totals["x"]
