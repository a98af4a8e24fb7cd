import subprocess
import sys

import pytest

from engine.errors import EngineStopped, ModelError
from engine.request import FinishReason, SamplingParams
from engine.simulated.demo import DemoEngine
from engine.simulated.script import ANSWER, MAX_MODEL_LEN, SCRIPTS
from engine.snapshot import Snapshot, SourceState
from waiting import CEILING_S

START = 1_798_070_400.0


class Clock:
    now = START

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def run(engine, clock, seconds):
    """Snapshots at 2 Hz."""
    for _ in range(round(seconds * 2)):
        clock.now += 0.5
        yield engine.snapshot()


def test_imports_no_torch():
    code = "import sys, engine.simulated.demo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_same_seed_gives_the_same_world():
    def story(seed):
        clock = Clock()
        engine = DemoEngine(seed=seed, clock=clock)
        return [s.to_json() for s in run(engine, clock, 20)]

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_nothing_moves_while_the_clock_stands(clock):
    engine = DemoEngine(clock=clock)
    assert engine.snapshot() is engine.snapshot()


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_snapshot_is_a_possible_one(script, clock):
    engine = DemoEngine(script, clock=clock)
    last = 0
    for s in run(engine, clock, 60):
        kv, batch = s.kv, s.batch
        assert s.seq >= last
        last = s.seq
        assert kv.free + kv.open + kv.sealed + kv.cached == kv.total == len(kv.page_map)
        assert [kv.page_map.count(letter) for letter in "fosc"] == [
            kv.free,
            kv.open,
            kv.sealed,
            kv.cached,
        ]
        assert kv.open <= batch.running
        assert 0 <= kv.usage <= 1
        assert kv.tail_waste_tokens >= 0
        assert batch.running <= batch.cap_max
        assert sum(row.state == "running" for row in s.requests) == batch.running
        assert sum(row.pages for row in s.requests) >= kv.open + kv.sealed
        assert sum(s.ledger[name] for name in ("pages", "prefix refs")) == sum(
            row.pages for row in s.requests
        )
        assert Snapshot.from_json(s.to_json()) == s


def test_pages_belong_to_one_request_each(clock):
    engine = DemoEngine("preempting", clock=clock)
    for _ in run(engine, clock, 30):
        engine.loop.scheduler.check_integrity()


def test_typical_is_busy_and_calm(clock):
    *_, s = run(DemoEngine(clock=clock), clock, 30)
    assert s.batch.running > 5 and s.batch.preemptions_total == 0
    assert s.latency.ttft_ms.p50 <= s.latency.ttft_ms.p99
    shares = [s.stages.queue, s.stages.tokenize, s.stages.prefill, s.stages.decode]
    assert sum(shares) + s.stages.detokenize + s.stages.return_ == pytest.approx(1)


def test_idle_does_nothing(clock):
    *_, s = run(DemoEngine("idle", clock=clock), clock, 10)
    assert s.queue.requests_total == 0 and s.kv.free == s.kv.total
    assert s.batch.step_ms is None and s.latency.ttft_ms.p50 is None


def test_full_runs_out_of_pages(clock):
    snapshots = list(run(DemoEngine("full", clock=clock), clock, 30))
    assert max(s.kv.usage for s in snapshots) > 0.9
    assert {s.batch.bound_by for s in snapshots} >= {"kv"}


def test_preempting_preempts_and_tells(clock):
    *_, s = run(DemoEngine("preempting", clock=clock), clock, 30)
    assert s.batch.preemptions_total > 0
    assert any(event.kind == "preempt" for event in s.events)


def test_stale_stops_publishing(clock):
    snapshots = list(run(DemoEngine("stale", clock=clock), clock, 10))
    assert snapshots[-1] is snapshots[10]
    assert snapshots[-1].time < START + 2.1


def test_dead_says_why_and_ages(clock):
    *_, s = run(DemoEngine("dead", clock=clock), clock, 10)
    assert s.source.state is SourceState.UNREACHABLE
    assert s.source.age_s == pytest.approx(8.0, abs=0.3)
    assert "out of memory" in s.source.reason


def test_start_may_fail(clock):
    error = ModelError("no such file")
    with pytest.raises(ModelError, match="no such file"):
        DemoEngine(clock=clock, start_error=error).start()


def test_an_answer_streams_and_stops(clock):
    engine = DemoEngine("idle", clock=clock)
    stream = engine.submit("hello", SamplingParams(max_tokens=100))
    assert stream.poll() is None
    events = []
    while not stream.finished:
        clock.now += 0.5
        engine.catch_up()
        event = stream.poll()
        events += [event] if event else []
    assert len(events) > 3
    assert "".join(event.text for event in events) == " ".join(ANSWER)
    assert events[-1].finish_reason is FinishReason.STOP
    assert engine.snapshot().finished == {"stop": 1}


def test_max_tokens_cuts_an_answer(clock):
    engine = DemoEngine("idle", clock=clock)
    stream = engine.submit([1, 2, 3], SamplingParams(max_tokens=3))
    clock.now += 5
    engine.catch_up()
    event = stream.poll()
    assert event.text == "The queue is" and event.finish_reason is FinishReason.LENGTH


def test_what_never_fits_is_refused(clock):
    engine = DemoEngine("idle", clock=clock)
    event = engine.submit([0] * MAX_MODEL_LEN, SamplingParams(max_tokens=1)).poll()
    assert event.finish_reason is FinishReason.REJECTED
    assert str(MAX_MODEL_LEN) in event.error
    clock.now += 1
    assert engine.snapshot().finished == {"rejected": 1}


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_cancelling_a_waiting_or_running_request(clock, seconds):
    engine = DemoEngine("idle", clock=clock)
    stream = engine.submit([{"role": "user", "content": "hi"}], SamplingParams())
    clock.now += seconds
    engine.catch_up()
    engine.cancel(stream.request_id)
    engine.cancel(stream.request_id)
    engine.cancel("no such request")
    assert stream.poll().finish_reason is FinishReason.CANCELLED
    clock.now += 1
    assert engine.snapshot().batch.running == 0
    assert engine.snapshot().kv.open == 0


def test_controls_take_effect(clock):
    engine = DemoEngine(clock=clock)
    engine.set_dynamic(False)
    engine.set_cap(3)
    engine.set_paused(True)
    s = engine.snapshot()
    assert s.batch.cap == 3 and s.batch.dynamic is False and s.engine.paused
    assert [event.kind for event in s.events][-3:] == ["config", "cap", "pause"]
    total = s.batch.running
    for s in run(engine, clock, 30):
        assert s.batch.running <= total
    assert s.batch.running == 0 and s.queue.waiting > 0


def test_a_stopped_engine_takes_nothing(clock):
    engine = DemoEngine(clock=clock)
    stream = engine.submit("hello", SamplingParams())
    engine.stop()
    engine.stop()
    assert stream.poll().finish_reason is FinishReason.CANCELLED
    with pytest.raises(EngineStopped):
        engine.submit("hello", SamplingParams())


def test_it_lives_by_itself_without_a_clock():
    engine = DemoEngine("idle")
    engine.start()
    stream = engine.submit("hello", SamplingParams(max_tokens=2))
    assert stream.result(CEILING_S).text == "The queue"
    engine.stop()


def test_a_long_sleep_is_skipped(clock):
    engine = DemoEngine(clock=clock)
    before = engine.snapshot().queue.requests_total
    clock.now += 10_000_000.0
    after = engine.snapshot()
    assert after.queue.requests_total - before < 500
    assert after.time == pytest.approx(clock.now, abs=0.2)


def test_the_other_controls_take_effect_too(clock):
    engine = DemoEngine(clock=clock)
    engine.set_dynamic(False)
    engine.set_max_wait(250.0)
    engine.set_draining(True)
    s = engine.snapshot()
    assert (s.batch.dynamic, s.batch.max_wait_ms, s.engine.draining) == (False, 250.0, True)
    late = engine.submit("hello", SamplingParams()).poll()
    assert late.finish_reason is FinishReason.REJECTED and "drains" in late.error
    *_, s = run(engine, clock, 200)
    assert s.batch.running == s.queue.waiting == 0
    engine.set_draining(False)
    *_, s = run(engine, clock, 30)
    assert s.batch.running > 0
