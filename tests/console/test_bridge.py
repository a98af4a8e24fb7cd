import threading

import pytest

from console.bridge import IN_FORCE_S, Bridge
from console.messages import AnswerArrived, EngineDown, EngineFailed, EngineUp
from console.renderables.screen_state import EnginePhase
from engine.errors import ModelError
from engine.observing.watchable import STALE_AFTER_S, aged
from engine.request import SamplingParams
from engine.simulated.demo import DemoEngine
from engine.snapshot import BatchState, Snapshot, Source, SourceState
from waiting import CEILING_S


class Posts:
    """Messages from any thread; `wait` returns the next one."""

    def __init__(self):
        self.seen = []
        self._more = threading.Condition()

    def __call__(self, message):
        with self._more:
            self.seen.append(message)
            self._more.notify_all()

    def _of(self, kind):
        return [message for message in self.seen if isinstance(message, kind)]

    def wait(self, kind):
        with self._more:
            found = self._more.wait_for(
                lambda: [m for m in self.seen if isinstance(m, kind)], CEILING_S
            )
        assert found, f"no {kind.__name__}; seen: {self.seen}"
        return found[0]


class Load:
    def __init__(self):
        self.started, self.stopped = threading.Event(), threading.Event()

    def start(self):
        self.started.set()

    def stop(self):
        self.stopped.set()


@pytest.fixture
def posts():
    return Posts()


def up(posts, clock, load=None, script="typical"):
    bridge = Bridge(DemoEngine(script, clock=clock), posts, load, clock)
    bridge.start()
    posts.wait(EngineUp)
    bridge.went_up()
    return bridge


def test_start_is_reported_and_then_the_load_begins(posts, clock):
    load = Load()
    bridge = Bridge(DemoEngine(clock=clock), posts, load, clock)
    assert bridge.phase is EnginePhase.LOADING and bridge.poll() == Snapshot()
    bridge.start()
    posts.wait(EngineUp)
    assert not load.started.is_set()
    bridge.went_up()
    assert load.started.wait(CEILING_S)
    assert bridge.poll().batch.running


def test_a_failed_start_is_reported_with_its_reason(posts, clock):
    error = ModelError("/models/x: no config.json; give a Hugging Face folder or a GGUF file")
    Bridge(DemoEngine(clock=clock, start_error=error), posts, None, clock).start()
    assert posts.wait(EngineFailed).error is error


def test_stop_ends_load_and_engine(posts, clock):
    load = Load()
    bridge = up(posts, clock, load)
    bridge.stop()
    posts.wait(EngineDown)
    assert load.stopped.is_set()
    assert bridge.phase is EnginePhase.STOPPING


def test_quitting_does_not_wait_for_a_model_that_loads(posts, clock):
    engine = DemoEngine(clock=clock, load_s=600.0)
    bridge = Bridge(engine, posts, None, clock)
    bridge.start()
    bridge.stop()
    posts.wait(EngineDown)
    engine.stop()


def test_an_engine_that_does_not_stop_does_not_hold_the_console(posts, clock, monkeypatch):
    monkeypatch.setattr("console.bridge.STOP_PATIENCE_S", 0.01)
    bridge = up(posts, clock)
    release = threading.Event()
    monkeypatch.setattr(bridge.engine, "stop", release.wait)
    bridge.stop()
    posts.wait(EngineDown)
    release.set()


def test_answers_are_announced(posts, clock):
    bridge = up(posts, clock, script="idle")
    stream = bridge.ask([{"role": "user", "content": "hi"}], SamplingParams(max_tokens=8))
    clock.now += 5.0
    bridge.poll()
    posts.wait(AnswerArrived)
    assert stream.poll().text


def test_a_cap_that_is_set_no_longer_moves(posts, clock):
    bridge = up(posts, clock)
    assert bridge.poll().batch.dynamic is True
    bridge.set_cap(7)
    assert (bridge.poll().batch.cap, bridge.poll().batch.dynamic) == (7, False)


def test_a_cap_just_set_counts_before_the_engine_has_published_it(posts, clock, monkeypatch):
    bridge = up(posts, clock)
    old = bridge.poll()
    monkeypatch.setattr(bridge.engine, "snapshot", lambda: old)
    bridge.set_cap(old.batch.cap + 1)
    assert bridge.cap == old.batch.cap + 1
    clock.now += IN_FORCE_S
    assert bridge.cap == old.batch.cap


def test_an_unknown_cap_is_not_known(posts, clock, monkeypatch):
    bridge = up(posts, clock)
    monkeypatch.setattr(bridge.engine, "snapshot", Snapshot)
    assert bridge.cap is None
    assert bridge.highest_cap == bridge.engine.config.max_batch


def test_what_an_engine_does_not_do_has_a_reason(posts, clock):
    bridge = up(posts, clock)
    assert bridge.refusal("set_cap") == ""
    assert bridge.refusal("set_moon") == "this engine has no such control"
    bridge.engine.why_not = lambda control: "a recording" if control == "set_cap" else ""
    assert bridge.refusal("set_cap") == "a recording"
    assert bridge.refusal("submit") == ""


def test_ages():
    snapshot = Snapshot(time=100.0)
    fresh = aged(snapshot, 101.0)
    assert fresh.source.state is SourceState.LIVE and fresh.source.age_s == 1.0
    old = aged(snapshot, 100.0 + STALE_AFTER_S + 1)
    assert old.source.state is SourceState.STALE
    assert old.source.reason
    assert aged(snapshot, 90.0).source.age_s == 0.0


def test_a_slow_engine_is_not_stale():
    slow = Snapshot(time=100.0, batch=BatchState(step_ms=4_000.0))
    assert aged(slow, 110.0).source.state is SourceState.LIVE
    assert aged(slow, 113.0).source.state is SourceState.STALE


def test_a_worse_state_is_not_softened():
    dead = Snapshot(time=100.0, source=Source(SourceState.UNREACHABLE, age_s=50.0, reason="gone"))
    source = aged(dead, 110.0).source
    assert (source.state, source.age_s, source.reason) == (SourceState.UNREACHABLE, 50.0, "gone")
