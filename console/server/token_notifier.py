"""From the engine's thread to the event loop: who is woken, and when.

A token is one call in the engine's thread. It marks its channel; the loop is woken for many at
once. Each waking takes a core from the model, so sweeps over the marked channels are spaced by
what the last one cost: writing takes at most SHARE of the time, and tokens that come meanwhile
go out together. With few streams that is at once, with many of them a little later. A first
token and an end never wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

SHARE = 0.01
"""Of one core, for writing tokens that can wait."""
LONGEST_S = 0.25
"""Nothing waits longer."""


class TokenNotifier:
    """One for each event loop. `mark` and `hurry` are the engine thread's, the rest the loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: deque[Channel] = deque()
        self._urgent: deque[Channel] = deque()
        self._armed = False
        self._hurried = False
        self._due = 0.0

    def mark(self, channel: Channel) -> None:
        self._ready.append(channel)
        if not self._armed:
            self._armed = True
            self._call(self._arm)

    def hurry(self, channel: Channel) -> None:
        self._urgent.append(channel)
        if not self._hurried:
            self._hurried = True
            self._call(self._serve_urgent)

    def _call(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and its readers with it
            self.loop.call_soon_threadsafe(work)

    def _serve_urgent(self) -> None:
        self._hurried = False  # before looking: what comes from here on wakes the loop again
        while self._urgent:
            self._urgent.popleft().wake()

    def _arm(self) -> None:
        if self._due <= self.loop.time():
            self._sweep()
        else:
            self.loop.call_at(self._due, self._sweep)

    def _sweep(self) -> None:
        self._armed = False
        start = time.thread_time()
        while self._ready:
            self._ready.popleft().wake()
        # Behind the readers that were just woken, and behind what they leave to be written.
        self.loop.call_soon(self.loop.call_soon, self._swept, start)

    def _swept(self, start: float) -> None:
        cost = time.thread_time() - start
        self._due = self.loop.time() + min(cost / SHARE, LONGEST_S)


class Channel:
    """Wakes one reader, for all streams of its request.

    The reader waits, takes what is there, and waits again: while it is busy writing, to a slow
    client say, nobody wakes it and tokens merge in their stream.
    """

    def __init__(self, notifier: TokenNotifier) -> None:
        self._notifier = notifier
        self._marked = False
        self._first = True
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None

    # engine side

    def token(self) -> None:
        if self._marked:
            return
        self._marked = True
        if self._first:
            self._first = False
            self._notifier.hurry(self)
        else:
            self._notifier.mark(self)

    def ended(self) -> None:
        self._notifier.hurry(self)

    # loop side

    def wake(self) -> None:
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Until somebody wakes it."""
        if not self._woken:
            self._waiter = self._notifier.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._woken = self._marked = False  # before the reader looks at its streams
