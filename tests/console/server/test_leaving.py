"""Clients that leave: what they asked for ends within two steps, wherever it is (K1, K2, K3, K9).

The engine is stepped by hand, so that "two steps" is exact.
"""

import json
import socket
import struct

import pytest

from engine.request import Priority, SamplingParams, Status
from engines import step_until_idle
from served import serving
from waiting import CEILING_S, until

ENDLESS = {"max_tokens": 2000, "ignore_eos": True, "temperature": 0}


def request(path="/v1/completions", **body):
    content = json.dumps({"prompt": [5, 6, 7]} | ENDLESS | body).encode()
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode() + content


def opened(served, count):
    """The engine thread's view, once `count` requests have reached it."""
    until(lambda: len(served.engine._open) == count)
    return list(served.engine._open.values())


def hang_up(wire, rudely):
    if rudely:  # a reset instead of an orderly end
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


@pytest.fixture
def by_hand():
    with serving(started=False, max_batch=8, max_positions=4096) as served:
        yield served


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rudely", [False, True])
def test_k1_k9_eight_clients_leave_and_two_steps_later_nothing_is_held(by_hand, stream, rudely):
    engine = by_hand.engine
    free = engine.pool.available
    wires = [by_hand.wire() for _ in range(8)]
    for i, wire in enumerate(wires):
        wire.sendall(request(prompt=[5 + i] * 20, stream=stream))
    requests = opened(by_hand, 8)
    while min(len(r.output_ids) for r in requests) < 5:
        engine.step()
    if stream:
        assert all(wire.recv(1) == b"H" for wire in wires)
    for wire in wires:
        hang_up(wire, rudely)
    until(lambda: all(r.cancelled for r in requests))
    produced = [len(r.output_ids) for r in requests]
    engine.step()
    engine.step()
    assert not engine.scheduler.running
    assert engine.pool.available == free
    assert [len(r.output_ids) for r in requests] <= [n + 2 for n in produced]
    by_hand.until_idle()
    admission = by_hand.server.app.admission
    until(lambda: admission.choices == 0)
    assert engine.telemetry.finished == {"cancelled": 8}


@pytest.mark.parametrize("stream", [False, True])
def test_k3_who_leaves_the_queue_is_never_computed(by_hand, stream):
    engine = by_hand.engine
    engine.set_cap(1)
    engine.step()
    runs = engine.submit([9] * 10, SamplingParams(max_tokens=30, ignore_eos=True))
    while not engine.scheduler.running:
        engine.step()
    wire = by_hand.wire()
    wire.sendall(request(stream=stream))
    (waits,) = [r for r in opened(by_hand, 2) if r.id != runs.request_id]
    engine.step()
    assert waits.status is Status.WAITING
    wire.close()
    until(lambda: waits.cancelled)
    step_until_idle(engine)
    assert len(runs.result(CEILING_S).token_ids) == 30
    assert (waits.output_ids, waits.num_computed, waits.most_computed) == ([], 0, 0)
    assert waits.stamps.first_scheduled == 0
    by_hand.until_idle()


def test_priorities_reach_the_queue(by_hand):
    """vLLM's numbers, on three levels: lower goes first."""
    engine = by_hand.engine
    engine.set_paused(True)
    engine.step()
    wires = {}
    for priority in (7, 0, -7):
        wires[priority] = by_hand.wire()
        wires[priority].sendall(request(priority=priority, max_tokens=2))
        opened(by_hand, len(wires))
    engine.step()
    waiting = list(engine.scheduler.waiting)
    assert [r.priority for r in waiting] == [Priority.HIGH, Priority.NORMAL, Priority.LOW]
    engine.set_paused(False)
    engine.set_cap(1)
    step_until_idle(engine)
    for wire in wires.values():
        assert wire.recv(4).startswith(b"HTTP")
        wire.close()
    by_hand.until_idle()


def test_who_leaves_takes_every_choice_along(by_hand):
    wire = by_hand.wire()
    wire.sendall(request(n=3, prompt=["the world", "and"]))
    requests = opened(by_hand, 6)
    by_hand.engine.step()
    wire.close()
    until(lambda: all(r.cancelled for r in requests))
    by_hand.engine.step()
    by_hand.engine.step()
    by_hand.until_idle()


def test_half_a_request_and_an_end_leave_nothing(by_hand):
    whole = request()
    for cut in (1, 30, len(whole) - 40, len(whole) - 1):
        wire = by_hand.wire()
        wire.sendall(whole[:cut])
        wire.close()
    by_hand.until_idle()
    assert by_hand.get("/health").status_code == 200
    assert by_hand.engine.telemetry.totals["requests"] == 0


def test_k2_five_hundred_aborted_streams_and_then_an_answer():
    with serving(max_positions=4096) as served:
        content = request(stream=True)
        for i in range(500):
            wire = served.wire()
            wire.sendall(content)
            for _ in range((0, 1, 3)[i % 3]):
                wire.recv(200)
            hang_up(wire, rudely=i % 2)
        served.until_idle()
        assert served.server.app.admission.choices == 0
        answer = served.post(prompt="the world", max_tokens=3, temperature=0)
        assert answer.json()["usage"]["completion_tokens"] == 3
        served.until_idle()
