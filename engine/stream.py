"""The channel of one request's output: the engine thread puts, one reader takes.

Tokens that the reader has not taken yet merge into one event, so a slow reader costs the
engine nothing and the channel never holds more than the request's own output.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from engine.request import FinishReason, Stamps, TokenLogprobs


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What came since the last event."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    """Set on the last event."""
    error: str | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One for each token id, where they were asked for."""


class Stream:
    """Iterate it for events; the last one carries the finish reason.

    `on_event`, if given, is called without arguments from the engine thread whenever
    something is there to take; it must return at once (an event loop's
    `call_soon_threadsafe`, say). See `listen` for who only wants the end.
    """

    def __init__(self, request_id: str, on_event: Callable[[], None] | None = None) -> None:
        self.request_id = request_id
        self._on_event = on_event
        self._on_end = on_event
        self._items: deque[tuple[str, Sequence[int]]] = deque()
        self._logprobs: deque[TokenLogprobs] = deque()
        self._reader_waits = False
        self._wake: threading.Event | None = None
        """Of a reader that waits, or has."""
        self._reason: FinishReason | None = None
        self._error: str | None = None
        self._taken_last = False
        self.stamps: Stamps | None = None
        """The request's stage stamps; complete once the stream is closed."""
        self.try_later = False
        """It was rejected for want of room or time: the same request may be taken later."""
        self.prompt_tokens = 0
        """Known once the engine has taken the request in."""

    # engine side: one writer. Appending to a deque is atomic, and a reader that is about to
    # wait says so before it looks a last time, so no lock is needed on the way of a token.

    def note(self, logprobs: TokenLogprobs) -> None:
        """What belongs to the token that is put next."""
        self._logprobs.append(logprobs)

    def put(self, text: str, token_ids: Sequence[int]) -> None:
        if self._reason is None:
            self._items.append((text, token_ids))
            if self._reader_waits and self._wake is not None:
                self._wake.set()
            if self._on_event is not None:
                self._on_event()

    def close(
        self,
        reason: FinishReason,
        text: str = "",
        error: str | None = None,
        token_ids: Sequence[int] = (),
    ) -> None:
        """End the stream; later puts and closes are ignored."""
        if self._reason is not None:
            return
        if text or token_ids:
            self._items.append((text, token_ids))
        self._error = error
        self._reason = reason
        if self._wake is not None:
            self._wake.set()
        if self._on_end is not None:
            with suppress(Exception):  # a reader that cannot be told is no reader any more
                self._on_end()

    # reader side: one reader

    def listen(
        self, on_event: Callable[[], None] | None, on_end: Callable[[], None] | None = None
    ) -> None:
        """Set `on_event` after the fact; called at once if something is there to take.

        With `on_end` the end calls that instead. `on_event` None: tokens call nobody, and
        `on_end` is called at once only if the stream is closed.
        """
        self._on_event = on_event
        self._on_end = on_end or on_event
        if self._on_end is not None and self.closed:
            self._on_end()
        elif on_event is not None and self._has_event():
            on_event()

    @property
    def closed(self) -> bool:
        """The request has ended; events may still wait to be taken."""
        return self._reason is not None

    @property
    def finished(self) -> bool:
        """The last event has been taken."""
        return self._taken_last

    def poll(self) -> StreamEvent | None:
        """What is there now, or None."""
        if not self._has_event():
            return None
        reason = self._reason  # read before the items: what came before it is among them
        text: list[str] = []
        tokens: list[int] = []
        while self._items:
            piece, ids = self._items.popleft()
            text.append(piece)
            tokens.extend(ids)
        if reason is not None:
            self._taken_last = True
        error = self._error if reason is not None else None
        logprobs: tuple[TokenLogprobs, ...] = ()
        if self._logprobs:  # noted before their tokens were put, so they are all here
            logprobs = tuple(self._logprobs.popleft() for _ in tokens)
        return StreamEvent("".join(text), tuple(tokens), reason, error, logprobs)

    def next(self, timeout: float | None = None) -> StreamEvent | None:
        """Wait for an event; None when none came within `timeout` seconds."""
        self._wait_for(self._has_event, timeout)
        return self.poll()

    def __iter__(self) -> Iterator[StreamEvent]:
        while not self._taken_last:
            event = self.next()
            if event is not None:
                yield event

    def result(self, timeout: float | None = None) -> StreamEvent:
        """All that is still to come, as one event. TimeoutError after `timeout` seconds."""
        if not self._wait_for(lambda: self.closed, timeout, each_token=False):
            raise TimeoutError(f"{self.request_id}: not finished after {timeout:g} s")
        event = self.poll()
        if event is None:
            raise RuntimeError(f"{self.request_id}: the last event was taken before")
        return event

    def _has_event(self) -> bool:
        return bool(self._items) or (self._reason is not None and not self._taken_last)

    def _wait_for(
        self, ready: Callable[[], bool], timeout: float | None, each_token: bool = True
    ) -> bool:
        """A reader of the end alone is not woken for tokens: on a machine whose cores are all
        in the model, every waking would hold up a step."""
        end = None if timeout is None else time.monotonic() + timeout
        wake = self._wake = self._wake or threading.Event()
        self._reader_waits = each_token
        try:
            while True:
                wake.clear()
                if ready():
                    return True
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                wake.wait(left)
        finally:
            self._reader_waits = False
