"""The channel of one request's output: the engine thread puts, one reader takes.

Tokens that the reader has not taken yet merge into one event, so a slow reader costs the
engine nothing and the channel never holds more than the request's own output.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from engine.request import FinishReason, Stamps


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What came since the last event."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    """Set on the last event."""
    error: str | None = None


class Stream:
    """Iterate it for events; the last one carries the finish reason.

    `on_event`, if given, is called without arguments from the engine thread whenever
    something is there to take; it must return at once (an event loop's
    `call_soon_threadsafe`, say).
    """

    def __init__(self, request_id: str, on_event: Callable[[], None] | None = None) -> None:
        self.request_id = request_id
        self._on_event = on_event
        self._ready = threading.Condition(threading.Lock())
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._reason: FinishReason | None = None
        self._error: str | None = None
        self._taken_last = False
        self.stamps: Stamps | None = None
        """The request's stage stamps; complete once the stream is closed."""
        self.prompt_tokens = 0
        """Known once the engine has taken the request in."""
        self.returned_ns = 0
        """Monotonic ns at which the reader took the last event."""

    # engine side

    def put(self, text: str, token_ids: list[int]) -> None:
        with self._ready:
            if self._reason is not None:
                return
            self._text.append(text)
            self._tokens.extend(token_ids)
            self._ready.notify()
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
        with self._ready:
            if self._reason is not None:
                return
            self._text.append(text)
            self._tokens.extend(token_ids)
            self._reason, self._error = reason, error
            self._ready.notify_all()
        if self._on_event is not None:
            with suppress(Exception):  # a reader that cannot be told is no reader any more
                self._on_event()

    # reader side

    def listen(self, on_event: Callable[[], None]) -> None:
        """Set `on_event` after the fact; called at once if something is there to take."""
        with self._ready:
            self._on_event = on_event
            waiting = self._has_event()
        if waiting:
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
        with self._ready:
            return self._take()

    def next(self, timeout: float | None = None) -> StreamEvent | None:
        """Wait for an event; None when none came within `timeout` seconds."""
        with self._ready:
            self._ready.wait_for(self._has_event, timeout)
            return self._take()

    def __iter__(self) -> Iterator[StreamEvent]:
        while not self._taken_last:
            event = self.next()
            if event is not None:
                yield event

    def result(self, timeout: float | None = None) -> StreamEvent:
        """All that is still to come, as one event. TimeoutError after `timeout` seconds."""
        with self._ready:
            if not self._ready.wait_for(lambda: self._reason is not None, timeout):
                raise TimeoutError(f"{self.request_id}: not finished after {timeout:g} s")
            event = self._take()
        if event is None:
            raise RuntimeError(f"{self.request_id}: the last event was taken before")
        return event

    def _has_event(self) -> bool:
        return bool(self._tokens) or (self._reason is not None and not self._taken_last)

    def _take(self) -> StreamEvent | None:
        if not self._has_event():
            return None
        event = StreamEvent("".join(self._text), tuple(self._tokens), self._reason, self._error)
        self._text.clear()
        self._tokens.clear()
        if self._reason is not None:
            self._taken_last = True
            self.returned_ns = time.monotonic_ns()
        return event
