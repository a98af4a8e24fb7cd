"""The embedded engine under load, in this process: a tiny model, real steps."""

import json
import threading

import pytest

from engines import assert_nothing_held, tiny_engine
from playbooks.load.client import LoadRun, run_load
from playbooks.load.embedded import BackgroundLoad
from playbooks.load.mix import PRESETS
from playbooks.load.record import RecordFile
from playbooks.load.summary import summarize
from playbooks.load.targets import EmbeddedTarget
from playbooks.load.traces import Trace
from playbooks.load.workload import make_spec
from waiting import CEILING_S


@pytest.fixture
def engine():
    engine = tiny_engine(pages=128)
    with engine:
        yield engine
        assert_idle(engine)


def assert_idle(engine):
    engine.ledger()  # two rounds of the engine's thread: cancelled requests are gone
    engine.ledger()
    assert_nothing_held(engine)


def run(engine, *args, **rest):
    return run_load(EmbeddedTarget(engine), make_spec(*args, **rest))


@pytest.mark.parametrize("arrivals", ["poisson:100", "closed:4"])
def test_a_load_on_the_engine(engine, arrivals):
    result = run(engine, arrivals, "uniform:5-20,3-9", requests=30, ignore_eos=True)
    found = summarize(result)
    assert found["requests"]["completed"] == 30
    assert found["finish_reasons"] == {"length": 30}
    for record in result.records:
        assert record.prompt_tokens == record.prompt_asked
        assert record.output_tokens == record.output_asked == len(record.events)
        assert record.scheduled <= record.sent
        assert record.scheduled < record.first <= record.last <= record.ended
        assert record.stamps.arrival == record.scheduled
    assert found["latency"]["queue_ms"]["n"] == found["requests"]["measured"]
    assert found["target"]["config"]["max_batch"] == 8
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("forced", [False, True])
def test_outputs_run_to_their_length_only_when_asked(engine, monkeypatch, forced):
    asked = []
    submit = engine.submit

    def watch(prompt, params, **rest):
        asked.append(params.ignore_eos)
        return submit(prompt, params, **rest)

    monkeypatch.setattr(engine, "submit", watch)
    run(engine, "closed:2", "fixed:8,4", requests=4, ignore_eos=forced)
    assert asked == [forced] * 4


def test_requests_are_cut_to_what_the_engine_can_hold(engine):
    assert EmbeddedTarget(engine).limit == 256
    result = run(engine, "closed:2", "fixed:300,300", requests=4, ignore_eos=True)
    assert [r.prompt_tokens + r.output_tokens for r in result.records] == [256] * 4
    assert result.shortened == 4


def test_what_the_engine_refuses_is_a_counted_failure():
    with tiny_engine(pages=64, max_waiting=1, max_batch=1) as engine:
        result = run(engine, "constant:100000", "fixed:8,30", requests=40, ignore_eos=True)
        found = summarize(result)
        assert found["errors"]["rejected"] > 0
        assert "queue is full" in found["error_examples"]["rejected"]
        assert found["errors"]["rejected"] + found["requests"]["completed"] == 40
        assert_idle(engine)


def test_requests_out_of_time_are_cancelled_in_the_engine(engine):
    result = run(engine, "closed:8", "fixed:8,200", requests=8, ignore_eos=True, timeout_s=0.001)
    assert {r.error for r in result.records} == {"timeout"}


def test_an_interrupt_cancels_what_is_open_in_the_engine(engine):
    import asyncio

    async def go():
        spec = make_spec("closed:8", "uniform:8-8,5-60", requests=500, ignore_eos=True)
        client = LoadRun(EmbeddedTarget(engine), spec, on_record=lambda *_: client.interrupt())
        return await asyncio.wait_for(client.run(), 60)

    result = asyncio.run(go())
    assert result.interrupted
    assert any(r.finish_reason == "interrupted" for r in result.records)


def test_an_engine_that_stops_under_load_ends_the_run():
    engine = tiny_engine(pages=64)
    engine.start()
    spec = make_spec("closed:4", "fixed:8,20", requests=100_000, ignore_eos=True)
    count = []

    def stop_after_ten(record, start):
        count.append(record)
        if len(count) == 10:
            threading.Thread(target=engine.stop).start()

    found = summarize(run_load(EmbeddedTarget(engine), spec, on_record=stop_after_ten))
    assert found["verdict"] == "inconclusive"
    assert found["requests"]["completed"] >= 10
    assert found["requests"]["sent"] < 100_000


def test_a_recording_can_be_replayed(engine, tmp_path):
    path = tmp_path / "own.jsonl"
    spec = make_spec("poisson:200", "uniform:5-20,3-9", requests=25, ignore_eos=True)
    with RecordFile(path) as file:
        first = run_load(EmbeddedTarget(engine), spec, on_record=file.write)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == list(range(25))
    assert all(row["ttft_ms"] > 0 and row["error"] is None for row in rows)
    again = run(engine, trace=path, ignore_eos=True)
    for one, two in zip(
        sorted(first.records, key=lambda r: r.index),
        sorted(again.records, key=lambda r: r.index),
        strict=True,
    ):
        assert (one.prompt_tokens, one.output_tokens) == (two.prompt_tokens, two.output_tokens)
    assert Trace(path).format == "recording"


# --- the console's traffic -----------------------------------------------------------------------


@pytest.mark.parametrize("rate", [400.0, None])
def test_background_load_keeps_the_engine_busy_until_it_is_stopped(engine, rate):
    load = BackgroundLoad(engine, PRESETS["chat"].scaled(0.02), rate)
    served = threading.Event()
    put = engine.telemetry.ended_with

    def watch(request, reason):
        put(request, reason)
        if engine.telemetry.totals["requests"] >= 20:
            served.set()

    engine.telemetry.ended_with = watch
    load.start()
    assert served.wait(CEILING_S)
    load.stop()
    assert not load._thread.is_alive()
    load.stop()  # again changes nothing


def test_background_load_ends_with_its_engine():
    engine = tiny_engine(pages=64)
    engine.start()
    load = BackgroundLoad(engine, PRESETS["chat"].scaled(0.02), rate=500.0)
    load.start()
    engine.stop()
    load._thread.join(CEILING_S)
    assert not load._thread.is_alive()


def test_background_requests_leave_room(engine):
    load = BackgroundLoad(engine, PRESETS["chat"])
    for prompt, output in ((1, 1), (10_000, 1), (1, 10_000), (10_000, 10_000)):
        fitted = load._fit(prompt, output)
        assert min(fitted) >= 1
        assert sum(fitted) <= 256 * 0.8
