"""Runs in virtual time: what is measured is known to the nanosecond."""

import asyncio
import gc
import itertools
import os
import signal
import threading
import time

import numpy as np
import pytest

from engine.errors import ConfigError, EngineStopped
from load_stub import TimedTarget, run_virtual
from playbooks.load.client import LoadRun, run_load
from playbooks.load.slo import parse_slo
from playbooks.load.summary import summarize
from playbooks.load.targets import Failed, NullTarget, TargetUnreachable
from playbooks.load.workload import LoadSpec, Workload, make_spec


def run(target, arrivals, lengths="fixed:20,11", **rest):
    return run_virtual(LoadRun(target, make_spec(arrivals, lengths, **rest)).run())


def report(*args, **rest):
    return summarize(run(*args, **rest))


# --- numbers that are known ------------------------------------------------------------------

TTFT, ITL, OUTPUT = 0.2, 0.05, 11
E2E = TTFT + (OUTPUT - 1) * ITL


@pytest.mark.parametrize(
    ("arrivals", "rate"),
    [("constant:20", 20), ("poisson:50", 50), ("closed:8", 8 / E2E), ("closed:1", 1 / E2E)],
)
def test_latency_and_throughput_are_what_they_are(arrivals, rate):
    found = report(TimedTarget(TTFT, ITL), arrivals, requests=400)
    latency = found["latency"]
    for name, truth in (("ttft_ms", TTFT), ("tpot_ms", ITL), ("itl_ms", ITL), ("e2e_ms", E2E)):
        for key in ("p50", "p90", "p99", "mean"):
            assert latency[name][key] == pytest.approx(truth * 1e3, rel=1e-4), (name, key)
    slack = 0.1 if "poisson" in arrivals else 0.01  # its rate in a window is random itself
    assert found["throughput"]["requests_s"] == pytest.approx(rate, rel=slack)
    assert found["throughput"]["output_tok_s"] == pytest.approx(rate * OUTPUT, rel=slack)
    assert found["throughput"]["total_tok_s"] == pytest.approx(rate * (OUTPUT + 20), rel=slack)
    assert found["window"]["steady"]
    assert found["window"]["begin_s"] >= E2E * 0.999
    assert (found["verdict"], found["reasons"]) == ("pass", [])


def test_littles_law_closes_in_a_closed_loop():
    found = report(TimedTarget(), "closed:16,0.3", "lognormal:100,20", duration_s=60)
    flight, rate = found["in_flight"]["mean"], found["throughput"]["requests_s"]
    assert flight == pytest.approx(rate * found["latency"]["e2e_ms"]["mean"] / 1e3, rel=0.05)
    assert found["in_flight"]["max"] <= 16


def test_latency_grows_from_the_scheduled_time_when_too_much_is_offered():
    """Four seats of 0.7 s serve 5.7 requests/s; 10 are offered. Nothing may hide the queue."""
    result = run(TimedTarget(capacity=4), "constant:10", requests=400)
    records = sorted(result.records, key=lambda r: r.index)
    latency = np.array([r.e2e_ms / 1e3 for r in records])
    due = np.array([(r.scheduled - result.start) / 1e9 for r in records])
    slope, start = np.polyfit(due, latency, 1)
    assert slope == pytest.approx(10 * E2E / 4 - 1, rel=0.02)
    assert start == pytest.approx(E2E, abs=0.4)
    assert np.corrcoef(due, latency)[0, 1] > 0.999
    assert max(r.send_delay_ms for r in records) < 0.001  # the waiting is not the generator's
    found = summarize(result)
    assert found["throughput"]["requests_s"] == pytest.approx(4 / E2E, rel=0.03)
    assert found["in_flight"]["max"] > 150


def test_the_measuring_window_leaves_the_warm_up_out():
    slow_start = TimedTarget()
    slow_start.act = lambda index: setattr(slow_start, "ttft", 2.0 if index < 40 else 0.1)
    found = report(slow_start, "constant:10", requests=400, warm_up_s=6.0)
    assert found["window"]["begin_s"] == 6.0
    assert found["requests"]["measured"] == 340
    assert found["latency"]["ttft_ms"]["p99"] == pytest.approx(100, rel=1e-3)
    everything = report(slow_start, "constant:10", requests=400, warm_up_s=0)
    assert everything["latency"]["ttft_ms"]["p99"] == pytest.approx(2000, rel=1e-3)
    assert everything["requests"]["measured"] == 400


def test_a_short_run_counts_whole_and_says_so():
    found = report(TimedTarget(), "closed:4", requests=4)
    assert not found["window"]["steady"]
    assert found["throughput"]["requests_s"] == pytest.approx(4 / E2E, rel=1e-3)
    assert any("too short" in note for note in found["warnings"])
    assert found["latency"]["e2e_ms"] == {
        "p50": pytest.approx(700), "p90": None, "p99": None, "mean": pytest.approx(700), "n": 4,
    }  # fmt: skip


def test_tpot_of_one_token_is_not_defined():
    found = report(TimedTarget(), "constant:10", "fixed:5,1", requests=50)
    assert found["latency"]["tpot_ms"]["n"] == found["latency"]["itl_ms"]["n"] == 0
    assert found["latency"]["e2e_ms"]["p50"] == found["latency"]["ttft_ms"]["p50"]


def test_goodput_counts_requests_that_meet_every_objective():
    target = TimedTarget(itl=0.01)
    target.act = lambda index: setattr(target, "ttft", 0.5 if index % 4 == 0 else 0.1)
    slo = parse_slo("ttft=300ms,e2e=1s,tpot=50")
    found = report(target, "constant:20", requests=401, slo=slo)
    assert found["goodput"]["share"] == pytest.approx(0.75, abs=0.01)
    assert found["goodput"]["requests_s"] == pytest.approx(15, rel=0.02)
    assert found["goodput"]["slo"] == {"ttft_ms": 300, "e2e_ms": 1000, "tpot_ms": 50}


def test_think_time_is_no_latency():
    result = run(TimedTarget(), "closed:2,5", requests=60)
    assert summarize(result)["latency"]["e2e_ms"]["p50"] == pytest.approx(E2E * 1e3, rel=1e-3)
    assert (result.end - result.start) / 1e9 > 60 / 2 * 3


# --- when it ends ----------------------------------------------------------------------------


def test_duration_ends_the_sending_and_open_requests_are_awaited():
    result = run(TimedTarget(ttft=3.0), "constant:10", duration_s=5.0)
    assert len(result.records) == 50
    assert all(r.completed for r in result.records)
    assert (result.issued_until - result.start) / 1e9 == pytest.approx(5.0)
    closed = run(TimedTarget(), "closed:3", duration_s=5.0)
    assert max(r.scheduled for r in closed.records) < closed.start + 5e9
    assert all(r.completed for r in closed.records)


def test_a_duration_with_few_requests_is_waited_for():
    found = report(TimedTarget(), "poisson:0.5", duration_s=30.0)
    assert found["wall_s"] == pytest.approx(30)
    assert found["throughput"]["requests_s"] < 2


def test_requests_that_take_too_long_are_counted_and_given_up():
    slow = TimedTarget()
    slow.act = lambda index: setattr(slow, "ttft", 50.0 if index % 5 == 0 else 0.1)
    result = run(slow, "constant:10", requests=100, timeout_s=2.0)
    found = summarize(result)
    assert found["errors"] == {"timeout": 20}
    assert found["requests"]["failed"] == 20
    assert found["verdict"] == "fail"
    assert (result.end - result.start) / 1e9 < 13
    assert found["latency"]["e2e_ms"]["p90"] < 1000


def test_nothing_due_is_no_evidence():
    found = report(TimedTarget(), "poisson:0.001", duration_s=1.0)
    assert found["verdict"] == "inconclusive"
    assert "no request was due" in found["reasons"][0]


def test_nothing_answered_is_no_evidence():
    def fail(index):
        raise Failed("http_500", "broken")

    found = report(TimedTarget(act=fail), "constant:5", requests=20)
    assert found["verdict"] == "inconclusive"
    assert found["errors"] == {"http_500": 20}
    assert found["error_examples"] == {"http_500": "broken"}
    assert found["throughput"] == {"output_tok_s": 0, "total_tok_s": 0, "requests_s": 0}
    assert found["latency"]["ttft_ms"]["n"] == 0


def test_an_engine_that_stops_ends_the_run_with_what_there_is():
    def stop(index):
        if index >= 30:
            raise EngineStopped("the engine has been stopped")

    found = report(TimedTarget(act=stop), "constant:10", requests=1000)
    assert found["verdict"] == "inconclusive"
    assert "the engine has been stopped" in found["reasons"][0]
    assert 20 <= found["requests"]["completed"] < 31
    with pytest.raises(EngineStopped):
        run(TimedTarget(act=lambda index: stop(99)), "constant:10", requests=10)


@pytest.mark.parametrize("arrivals", ["constant:10", "closed:3"])
def test_a_bug_is_raised_and_nothing_hangs(arrivals):
    def bug(index):
        if index == 7:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(TimedTarget(act=bug), arrivals, requests=100)


@pytest.mark.parametrize("arrivals", [None, "closed:3"])
def test_a_trace_that_breaks_half_way_ends_the_run_with_what_there_is(tmp_path, arrivals):
    path = tmp_path / "t.csv"
    good = "".join(f"{i / 10},M,20,2,0,x\n" for i in range(4400))
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    path.write_text(head + good + "bad\n" * 100)
    spec = make_spec(arrivals, trace=path)
    found = summarize(run_virtual(LoadRun(TimedTarget(), spec).run()))
    assert found["verdict"] == "inconclusive"
    assert "rows are unusable" in found["reasons"][0]
    assert found["requests"]["completed"] > 200


@pytest.mark.parametrize("arrivals", ["constant:10", "closed:4", "closed:4,1"])
def test_an_interrupt_keeps_what_was_measured(arrivals):
    async def interrupted():
        client = LoadRun(TimedTarget(), make_spec(arrivals, "fixed:20,11", duration_s=1000))
        asyncio.get_running_loop().call_later(20.05, client.interrupt)
        return await client.run()

    result = run_virtual(interrupted())
    found = summarize(result)
    assert result.interrupted
    assert found["interrupted"]
    assert found["wall_s"] == pytest.approx(20.05)
    assert found["requests"]["interrupted"] == sum(not r.completed for r in result.records)
    assert found["latency"]["e2e_ms"]["p50"] == pytest.approx(700, rel=1e-3)
    assert found["requests"]["failed"] == 0


def test_ctrl_c_ends_a_run_in_the_main_thread():
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are for the main thread")
    seen = []

    def press(progress):
        seen.append(progress)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    result = run_load(NullTarget(), make_spec("closed:2,0.01", duration_s=600), press)
    assert result.interrupted
    assert len(seen) == 1
    assert signal.getsignal(signal.SIGINT) is before
    assert result.records


def test_who_watches_may_end_a_run_at_once():
    def enough(progress):
        raise OverflowError("enough")

    start = time.monotonic()
    with pytest.raises(OverflowError, match="enough"):
        run_load(NullTarget(), make_spec("closed:2,0.01", duration_s=600), enough)
    assert time.monotonic() - start < 300


def test_an_interrupt_by_who_watches_is_raised_and_nothing_else_is_said(caplog):
    def enough(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_load(NullTarget(), make_spec("closed:2,0.01", duration_s=600), enough)
    gc.collect()
    assert "never retrieved" not in caplog.text


# --- seeds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", ["poisson:40", "gamma:40,2", "closed:6,0.1"])
def test_the_same_seed_sends_the_same_requests_at_the_same_time(arrivals):
    def sent(seed):
        target = TimedTarget()
        result = run(target, arrivals, "chat*0.1", requests=120, seed=seed)
        records = sorted(result.records, key=lambda r: r.index)
        return [r.scheduled for r in records], sorted(o.prompt for o in target.seen)

    assert sent(5) == sent(5) != sent(6)


def test_requests_do_not_depend_on_how_they_are_sent():
    open_loop, closed = TimedTarget(), TimedTarget(ttft=1.5)
    run(open_loop, "poisson:200", "chat*0.1", requests=80)
    run(closed, "closed:3", "chat*0.1", requests=80)
    assert sorted(o.prompt for o in open_loop.seen) == sorted(o.prompt for o in closed.seen)


def test_requests_longer_than_the_target_takes_are_cut_and_counted():
    spec = make_spec("constant:5", "uniform:1-200,1-200", requests=300)
    workload = Workload(spec, limit=100)
    planned = list(workload)
    assert all(p.prompt + p.output <= 100 for p in planned)
    assert all(p.prompt >= 1 and p.output >= 1 for p in planned)
    free = list(itertools.islice(Workload(spec), 300))
    cut = sum(p.prompt + p.output > 100 for p in free)
    assert workload.shortened == cut > 100
    found = report(TimedTarget(limit=100), "constant:5", "uniform:1-200,1-200", requests=300)
    assert any(f"{cut} requests were cut" in note for note in found["warnings"])
    assert found["tokens"]["longest_context"] <= 100


# --- the generator itself ----------------------------------------------------------------------


def test_a_generator_that_falls_behind_makes_the_run_inconclusive():
    """Each sending costs 20 ms of the loop's own time at 10 ms between two: a queue at home."""
    target = TimedTarget(ttft=0.01, itl=0.001)

    def busy(index):
        asyncio.get_running_loop()._selector.now += 0.02

    target.act = busy
    found = report(target, "constant:100", requests=400)
    assert found["generator_bound"]
    assert found["verdict"] == "inconclusive"
    assert "the load generator was the limit" in found["reasons"][0]
    assert found["send_delay_ms"]["p99"] > 1000
    assert found["latency"]["ttft_ms"]["p99"] > 1000  # and the delay is in the latency


def test_a_closed_loop_notices_a_busy_loop_too():
    target = TimedTarget(ttft=0.01, itl=0.001)

    def busy(index):
        asyncio.get_running_loop()._selector.now += 0.2

    target.act = busy
    found = report(target, "closed:4", requests=400)
    assert found["generator_bound"]


# --- specs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"requests": 0}, "requests: expected at least 1"),
        ({"duration_s": 0.0}, "duration_s: expected seconds above 0"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"timeout_s": -1.0}, "timeout_s"),
        ({"warm_up_s": -1.0}, "warm_up"),
        ({"seed": -1}, "seed: expected at least 0"),
        ({"shared_prefix": -1}, "shared_prefix"),
        ({"time_scale": 2.0}, "there are none to stretch"),
        ({"prompt_scale": 0.0}, "prompt_scale: expected a factor"),
    ],
)
def test_a_spec_that_cannot_be_gets_one_clear_line(options, why):
    with pytest.raises(ConfigError, match=why) as caught:
        make_spec("poisson:1", **options)
    assert "\n" not in str(caught.value)


def test_a_load_without_an_end_is_refused_and_one_from_the_command_line_gets_one():
    spec = make_spec("poisson:1")
    assert spec.duration_s == 30
    with pytest.raises(ConfigError, match="needs an end"):
        LoadSpec(spec.arrivals, spec.mix)
    assert make_spec("ramp:1-5/12").seconds == 12
    assert make_spec("ramp:1-5/12", requests=5).seconds is None


def test_scales_and_warnings():
    spec = make_spec("poisson:1", "fixed:100,50", prompt_scale=0.5, output_scale=2)
    assert next(spec.mix.pairs(0)) == (50, 100)
    assert any("proves nothing about production" in note for note in spec.warnings)
    assert make_spec("poisson:1", "chat").warnings == []


@pytest.mark.parametrize(
    "text",
    ["", "ttft", "ttft=", "ttft=-1", "ttft=5h", "ttft=1,ttft=2", "itl=5", "e2e=nan", "e2e=s"],
)
def test_a_bad_slo_gets_one_clear_line(text):
    with pytest.raises(ConfigError, match="slo: ") as caught:
        parse_slo(text)
    assert "\n" not in str(caught.value)


def test_a_target_that_cannot_be_entered_is_an_error_at_once():
    class Nobody(TimedTarget):
        async def __aenter__(self):
            raise TargetUnreachable("nobody there")

    with pytest.raises(TargetUnreachable):
        run(Nobody(), "constant:1", requests=3)
