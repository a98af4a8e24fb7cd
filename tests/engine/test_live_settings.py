"""What an operator may change while the engine works, and the promises that hold meanwhile."""

import math

import pytest

from engine.errors import ConfigError
from engine.request import FinishReason, SamplingParams
from engine.simulated.clock import VirtualClock
from engines import answers, assert_nothing_held, step_until_idle, tiny_engine


def forced(n):
    return SamplingParams(max_tokens=n, temperature=0.0, ignore_eos=True)


def kinds(engine):
    engine.loop.observer.publish()
    return [(event.kind, event.text) for event in engine.snapshot().events]


def test_draining_finishes_what_waits_and_runs_and_rejects_the_rest():
    engine = tiny_engine(max_batch=2)
    accepted = [engine.submit([5 + i] * 10, forced(12)) for i in range(5)]
    engine.step()
    engine.set_draining(True)
    late = engine.submit([5] * 4, forced(3))
    done = answers(engine, [*accepted, late])
    assert [d.finish_reason for d in done[:5]] == [FinishReason.LENGTH] * 5
    assert all(len(d.token_ids) == 12 for d in done[:5])
    assert done[5].finish_reason is FinishReason.REJECTED
    assert "drains" in done[5].error
    assert engine.snapshot().engine.draining is True
    assert_nothing_held(engine)


def test_after_draining_it_accepts_again():
    engine = tiny_engine()
    engine.set_draining(True)
    engine.set_draining(False)
    (done,) = answers(engine, [engine.submit([5] * 4, forced(3))])
    assert done.finish_reason is FinishReason.LENGTH
    assert [text for kind, text in kinds(engine) if kind == "config"] == [
        "draining: nothing new is accepted",
        "accepting again",
    ]


def test_the_longest_wait_moves_a_static_batch():
    clock = VirtualClock()
    engine = tiny_engine(policy="static", max_wait_ms=60_000.0, clock=clock)
    engine.submit([5] * 4, forced(2))
    assert engine.step() is False  # one of eight waits for company
    engine.set_max_wait(5.0)
    clock.advance(6_000_000)
    assert engine.step() is True
    assert engine.snapshot().batch.max_wait_ms == 5.0
    assert ("config", "longest wait 60000 → 5 ms") in kinds(engine)
    step_until_idle(engine)


def test_the_longest_wait_reaches_the_moving_cap():
    engine = tiny_engine(dynamic_batch=True)
    engine.set_max_wait(123.0)
    engine.step()
    assert engine.loop.controls.controller.objective.max_wait_ms == 123.0


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_longest_wait_that_makes_no_sense_is_refused(value):
    engine = tiny_engine()
    with pytest.raises(ConfigError, match="max_wait_ms"):
        engine.set_max_wait(value)


def test_a_storm_of_changes_loses_no_token():
    """Greedy output with the settings moving at every step equals that without."""
    prompts = [[5 + i, 7, 11 + i] * (2 + i) for i in range(8)]
    still = tiny_engine(pages=96)
    expected = [d.token_ids for d in answers(still, [still.submit(p, forced(15)) for p in prompts])]
    moved = tiny_engine(pages=96)
    streams = [moved.submit(p, forced(15)) for p in prompts]
    for at in range(400):
        moved.set_cap(1 + at % 8)
        moved.set_paused(at % 3 == 0)
        moved.set_dynamic(at % 5 == 0)
        moved.set_max_wait(1.0 + at)
        moved.set_draining(at % 2 == 0)
        moved.step()
        moved.scheduler.check_integrity()
    moved.set_paused(False)
    moved.set_dynamic(False)
    got = answers(moved, streams)
    assert [d.token_ids for d in got] == expected
    assert_nothing_held(moved)


def test_rows_say_what_a_request_did_so_far():
    engine = tiny_engine()
    engine.submit("some text to tokenize", forced(30))
    for _ in range(500):
        engine.step()
        rows = engine.loop.observer.publish() or engine.snapshot().requests
        if rows and rows[0].output_tokens >= 3:
            break
    (row,) = rows
    assert row.tokenize_ms is not None and row.tokenize_ms > 0
    assert row.detokenize_ms is not None and row.detokenize_ms > 0
    assert row.preemptions == 0
    step_until_idle(engine)
