"""Two engines on one thread: equal time, own time, and a broken one that stops alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.request import SamplingParams
from engines import tiny_engine
from playbooks.canary import busy
from playbooks.canary.busy import BusyLog
from playbooks.canary.fair_scheduler import FairScheduler


class Clock:
    now = 0

    def __call__(self):
        return self.now


def turns_of(costs):
    """Engines whose steps take so many ns each, and the order in which they make them."""
    clock, order = Clock(), []

    def make():
        engines = {name: tiny_engine() for name in costs}
        for name, engine in engines.items():
            engine.step = counted(name, engine.step)
        return engines

    def counted(name, step):
        def counting():
            busy = step()
            if busy:
                clock.now += costs[name]
                order.append(name)
            return busy

        return counting

    turns = FairScheduler(make, clock)
    turns.load()
    return turns, clock, order


def submit(turns, name, tokens=60):
    params = SamplingParams(tokens, ignore_eos=True)
    return turns.engines[name].submit([5, 6, 7], params)


def test_time_is_shared_and_not_steps():
    turns, _, order = turns_of({"a": 100, "b": 300})
    submit(turns, "a")
    submit(turns, "b")
    for _ in range(40):
        assert turns.turn()
    assert order.count("a") == pytest.approx(30, abs=2)


def test_who_comes_back_from_a_pause_is_level_with_the_other():
    turns, _, order = turns_of({"a": 100, "b": 100})
    submit(turns, "a")
    for _ in range(20):
        turns.turn()
    submit(turns, "b")
    for _ in range(20):
        turns.turn()
    assert order[20:].count("b") == pytest.approx(10, abs=1)


def test_nothing_to_do_is_no_turn():
    turns, clock, _ = turns_of({"a": 100, "b": 100})
    assert not turns.turn()
    assert clock.now == 0


def test_what_the_other_computed_is_known():
    turns, clock, order = turns_of({"a": 100, "b": 300})
    submit(turns, "a")
    submit(turns, "b")
    while turns.turn():
        pass
    assert turns.held_ns("a", 0, clock.now) == 300 * order.count("b")
    assert turns.held_ns("b", 0, clock.now) == 100 * order.count("a")
    assert turns.held_ns("a", 0, 0) == 0


def test_a_step_that_breaks_ends_its_engine_only(caplog):
    turns, _, order = turns_of({"a": 100, "b": 100})
    a, b = submit(turns, "a", 5), submit(turns, "b", 5)
    turns.engines["a"].scheduler.plan = None
    while turns.turn():
        pass
    assert a.result(0).error.startswith("the engine has ended: TypeError")
    assert len(b.result(0).token_ids) == 5
    assert set(order) == {"b"}
    assert "TypeError" in turns.dead["a"]


def test_calls_are_answered_between_steps_and_their_errors_too():
    turns, *_ = turns_of({"a": 1})
    good, bad = turns.post(lambda: 5), turns.post(lambda: 1 / 0)
    turns.turn()
    assert good.result(0) == 5
    with pytest.raises(ZeroDivisionError):
        bad.result(0)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=20),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_a_busy_log_is_the_sum_of_its_spans(spans, start, length):
    log, timeline, now = BusyLog(), np.zeros(400), 0
    for gap, span in spans:
        now += gap
        log.add(now, now + span)
        timeline[now : now + span] = 1
        now += span
    assert log.within(start, start + length) == timeline[start : start + length].sum()


def test_a_busy_log_forgets_the_oldest(monkeypatch):
    monkeypatch.setattr(busy, "KEPT", 10)
    log = BusyLog()
    for i in range(100):
        log.add(10 * i, 10 * i + 5)
    assert log.within(900, 1000) == 50
    assert log.within(0, 10) == 0
