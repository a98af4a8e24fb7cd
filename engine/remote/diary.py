"""What happened to a watched engine, as events for the console and the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from engine.remote.adapters.base import Adapter
from engine.remote.metrics.numbers import Numbers
from engine.snapshot import Event

KEPT = 100


class Diary:
    """`clock` is Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._said = 0

    def say(self, kind: str, text: str) -> None:
        self._events.append(Event(self._clock(), kind, text))
        self._said += 1

    def found(self, adapter: Adapter, url: str) -> None:
        self.say("info", f"found {adapter.title} at {url}")
        if adapter.cannot_know:
            self.say("info", f"it does not tell: {'; '.join(adapter.cannot_know)}")

    def changed(self, restarted: bool, before: Numbers | None, now: Numbers) -> None:
        """What the numbers show since the last look."""
        if restarted:
            self.say("info", "it restarted: its counters began again")
        if before is None:
            return
        was, is_now = (n.totals.get("preemptions", 0.0) for n in (before, now))
        if is_now > was:
            self.say("preempt", f"preempted {is_now - was:.0f} times since the last look")

    def with_those(self, others: tuple[Event, ...]) -> tuple[Event, ...]:
        """The newest of both, by time."""
        if not others:
            return tuple(self._events)
        return tuple(sorted((*others, *self._events), key=lambda event: event.time)[-KEPT:])

    def since(self, count: int) -> tuple[int, tuple[Event, ...]]:
        """Events after the first `count`, as far as they are kept, and how many there were."""
        new = min(self._said - count, len(self._events))
        return self._said, tuple(self._events)[len(self._events) - new :]
