"""Waking readers: none is forgotten, first tokens and ends do not wait, the rest comes together."""

import asyncio
import random
import threading

import pytest

from console.server import token_notifier as module
from console.server.token_notifier import Channel, TokenNotifier
from engine.request import FinishReason
from engine.stream import Stream
from waiting import CEILING_S


async def read(channel, stream):
    """All that comes, and in how many pieces."""
    ids, pieces = [], 0
    while not stream.finished:
        await channel.wait()
        event = stream.poll()
        if event is not None:
            ids += event.token_ids
            pieces += 1
    return ids, pieces


async def test_no_token_and_no_end_is_forgotten_under_any_timing():
    notifier = TokenNotifier(asyncio.get_running_loop())
    streams = [Stream(str(i)) for i in range(20)]
    channels = [Channel(notifier) for _ in streams]
    for stream, channel in zip(streams, channels, strict=True):
        stream.listen(channel.token, channel.ended)
    readers = [asyncio.create_task(read(c, s)) for c, s in zip(channels, streams, strict=True)]

    def engine():
        rng = random.Random(0)
        for step in range(300):
            for stream in streams:
                stream.put("x", (step,))
            if not rng.randrange(5):
                threading.Event().wait(rng.random() / 500)
        for stream in streams:
            stream.close(FinishReason.LENGTH)

    thread = threading.Thread(target=engine)
    thread.start()
    found = await asyncio.wait_for(asyncio.gather(*readers), CEILING_S)
    thread.join()
    assert all(ids == list(range(300)) for ids, _ in found)


@pytest.fixture
async def clock(monkeypatch):
    """The loop's own clock, which only the test moves."""
    now = [0.0]
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
    return now


async def turns():
    """As far as the loop gets without its clock."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_first_tokens_and_ends_are_at_once_and_others_together(clock):
    notifier = TokenNotifier(asyncio.get_running_loop())
    notifier._due = 0.15  # as after a sweep that cost much
    stream, channel = Stream("r"), Channel(notifier)
    stream.listen(channel.token, channel.ended)
    reader = asyncio.create_task(channel.wait())
    stream.put("a", (1,))
    await turns()
    assert reader.done()
    assert stream.poll().token_ids == (1,)
    reader = asyncio.create_task(channel.wait())
    for token in range(2, 6):
        stream.put("a", (token,))
    clock[0] = 0.14
    await turns()
    assert not reader.done()
    clock[0] = 0.16
    await reader
    assert stream.poll().token_ids == (2, 3, 4, 5)
    await turns()
    notifier._due = 10.0
    reader = asyncio.create_task(channel.wait())
    stream.put("a", (6,))
    stream.close(FinishReason.STOP)
    await turns()
    assert reader.done()
    assert stream.poll().finish_reason is FinishReason.STOP


async def test_a_sweep_that_cost_much_is_followed_by_a_pause(monkeypatch, clock):
    notifier = TokenNotifier(asyncio.get_running_loop())
    spent = iter([1.0, 1.001])
    monkeypatch.setattr(module.time, "thread_time", lambda: next(spent))
    channel = Channel(notifier)
    channel.token()
    await channel.wait()
    channel.token()
    await channel.wait()
    await turns()
    assert notifier._due == pytest.approx(0.001 / module.SHARE)


async def test_a_reader_of_the_end_is_not_woken_by_tokens():
    notifier = TokenNotifier(asyncio.get_running_loop())
    stream, channel = Stream("r"), Channel(notifier)
    stream.listen(None, channel.ended)
    waiting = asyncio.create_task(channel.wait())
    stream.put("a", (1,))
    await turns()
    assert not waiting.done()
    stream.close(FinishReason.STOP)
    await asyncio.wait_for(waiting, CEILING_S)


async def test_an_end_before_anybody_listened_is_told():
    notifier = TokenNotifier(asyncio.get_running_loop())
    stream, channel = Stream("r"), Channel(notifier)
    stream.put("a", (1,))
    stream.close(FinishReason.STOP)
    stream.listen(channel.token, channel.ended)
    await asyncio.wait_for(channel.wait(), CEILING_S)
    assert stream.poll().finish_reason is FinishReason.STOP
