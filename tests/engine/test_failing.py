"""What a broken part of the loop may take with it, and that nobody waits for what will not come."""

import threading
import time

import pytest
import torch

from engine.core import completion
from engine.errors import EngineStopped
from engine.request import FinishReason, SamplingParams
from engines import answers, assert_nothing_held, step_until_idle, tiny_engine

AT_ONCE_S = 1.0


def forced(tokens):
    return SamplingParams(max_tokens=tokens, ignore_eos=True)


def broken(*_, **__):
    raise RuntimeError("a probe")


def killed(*_, **__):
    raise SystemExit("a probe")


PHASES = {
    "planning": ("scheduler", "plan", broken),
    "settling": ("loop", "_settle", broken),
    "recording": ("telemetry", "step", broken),
    "the thread": ("runner", "run", killed),
    "taking in": ("loop", "take_in", broken),
}


def at_once(call):
    start = time.monotonic()
    with pytest.raises(EngineStopped, match="a probe"):
        call()
    assert time.monotonic() - start < AT_ONCE_S


@pytest.mark.parametrize("phase", PHASES)
def test_a_loop_that_breaks_says_so_to_everybody_at_once(phase):
    engine = tiny_engine()
    engine.start()
    streams = [engine.submit([5 + i] * 10, forced(230)) for i in range(3)]
    assert streams[0].next(10) is not None
    part, name, probe = PHASES[phase]
    setattr(getattr(engine, part), name, probe)
    for stream in streams:
        last = stream.result(10)
        assert last.finish_reason is FinishReason.ERROR
        assert "a probe" in last.error
    engine._thread.join(10)
    at_once(lambda: engine.submit([5], forced(1)))
    at_once(lambda: engine.submit("the world", forced(1)))
    at_once(lambda: engine.encode("the world"))
    at_once(lambda: engine.generate([[5]]))
    at_once(engine.ledger)
    at_once(engine.reset)
    at_once(lambda: engine.call(lambda: 1))
    at_once(lambda: engine.set_paused(True))
    at_once(engine.step)
    at_once(engine.start)
    assert "a probe" in engine.alarm()
    assert "a probe" in engine.snapshot().engine.alarm
    assert not engine._open
    engine.stop()


@pytest.mark.parametrize("part", [("scheduler", "finish"), ("telemetry", "ended_with")])
def test_who_cannot_be_freed_has_an_answer_and_nobody_goes_on(part):
    """Its pages would be lost: the books are not to be trusted after that."""
    engine = tiny_engine()
    engine.start()
    setattr(getattr(engine, part[0]), part[1], broken)
    short, long = engine.submit([5], forced(3)), engine.submit([6], forced(200))
    assert short.result(10).finish_reason is FinishReason.LENGTH
    last = long.result(10)
    assert last.finish_reason is FinishReason.ERROR and "a probe" in last.error
    engine._thread.join(10)
    assert "a probe" in engine.alarm()
    at_once(lambda: engine.submit([5], forced(1)))
    engine.stop()


def test_a_thread_that_is_gone_without_a_word_is_an_alarm(monkeypatch):
    engine = tiny_engine()
    monkeypatch.setattr(engine, "_end", lambda *_: None)
    monkeypatch.setattr(engine.runner, "run", killed)
    engine.start()
    engine.submit([5], forced(1))
    engine._thread.join(10)
    assert "gone" in engine.alarm()


def test_calls_and_texts_on_their_way_are_answered_when_the_loop_breaks(monkeypatch):
    engine = tiny_engine()
    entered, go = threading.Event(), threading.Event()
    run, encode = engine.runner.run, engine.loaded.tokenizer.encode

    def slow(batch):
        entered.set()
        go.wait(10)
        engine.telemetry.step = broken
        return run(batch)

    engine.runner.run = slow
    monkeypatch.setattr(engine.loaded.tokenizer, "encode", lambda t: go.wait(10) and encode(t))
    engine.start()
    first = engine.submit([5], forced(50))
    assert entered.wait(10)
    text = engine.submit("the world", forced(5))
    waiting = engine._post(lambda: 1)
    threading.Timer(0.05, go.set).start()
    with pytest.raises(EngineStopped, match="a probe"):
        engine.ledger()
    assert "a probe" in str(waiting.exception(10))
    for stream in (first, text):
        assert stream.result(10).finish_reason is FinishReason.ERROR
    engine.stop()


def test_a_fault_in_observing_ends_no_step():
    engine = tiny_engine()
    before = engine.snapshot()
    for name in ("latency", "stages", "bound_shares"):
        setattr(engine.telemetry, name, broken)
    engine.loop.observer.watchdog.look = broken
    streams = [engine.submit([5 + i] * 10, forced(8)) for i in range(3)]
    while engine.step():
        engine.loop.observer.publish()
    assert {completion(s, 1).finish_reason for s in streams} == {FinishReason.LENGTH}
    assert engine.snapshot() is before
    events = [e.text for e in engine.telemetry.events if e.kind == "error"]
    assert events == ["observing failed: RuntimeError: a probe"]
    assert engine.alarm() is None
    assert_nothing_held(engine)


# --- nothing is published before it was looked at ------------------------------------------


def spoil_once(engine, spoil):
    """The next pass through the model goes through `spoil` and the one after is itself again."""
    run = engine.runner.run

    def once(batch):
        engine.runner.run = run
        return spoil(batch, run)

    engine.runner.run = once


def spoilt(batch, run):
    """What one NaN in a layer makes of every row."""
    return run(batch) * torch.nan


@pytest.mark.parametrize("kv_format", ["fp16", "int8_channel", "k4v4", "int8_token"])
@pytest.mark.parametrize("at", ["an early chunk", "the last chunk", "decoding"])
def test_a_damaged_step_ends_its_request_and_publishes_nothing(kv_format, at):
    prompt, params = [7 + i % 90 for i in range(70)], forced(20)
    truth = answers(sound := tiny_engine(kv_format=kv_format), [sound.submit(prompt, params)])
    engine = tiny_engine(kv_format=kv_format)
    stream = engine.submit(prompt, params)
    for _ in range({"an early chunk": 0, "the last chunk": 2, "decoding": 12}[at]):
        engine.step()
    known = len(engine.pool.index)
    spoil_once(engine, spoilt)
    engine.step()
    last = stream.result(1)
    assert last.finish_reason is FinishReason.ERROR and "not finite" in last.error
    assert len(engine.pool.index) <= known
    step_until_idle(engine)
    assert_nothing_held(engine)
    again = answers(engine, [engine.submit(prompt, params)])
    assert again[0].token_ids == truth[0].token_ids


def test_pages_that_a_damaged_request_has_read_are_given_to_nobody():
    engine = tiny_engine()
    prompt = [7 + i % 90 for i in range(64)]
    answers(engine, [engine.submit(prompt, forced(2))])
    assert len(engine.pool.index) == 4
    other = engine.submit([*prompt, 9, 9], forced(20))
    engine.step()
    assert engine.pool.index.hit_tokens > 0
    spoil_once(engine, spoilt)
    engine.step()
    assert other.result(1).finish_reason is FinishReason.ERROR
    assert len(engine.pool.index) == 0
    assert_nothing_held(engine)
