"""When the next request of the console's own load is due. No threads, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

RATE_START = 2.0
"""Requests/s until enough have ended to know better."""
MOST_RATE = 50.0
ENDS, ENDS_NS = 32, 30_000_000_000
"""The rate is measured by so many of the newest ends, of so long at most where they are enough."""
FEW_ENDS = 4
MOST_LATE = 1.0
"""Arrivals that are made up for after a moment in which nothing could be sent."""
REFUSED_NS = 1_000_000_000
"""After a request that failed: an engine that takes nothing is not asked again at once."""


class Pace(Protocol):
    """Times are nanoseconds of one monotonic clock."""

    def due(self, now: int, under_way: int, waiting: int, cap: int) -> int | None:
        """When to send the next one; None: not before something changes.

        To be asked again after every end, and from time to time. `under_way`: sent and not ended;
        `waiting`: of all that the engine has, those that do not run yet.
        """

    def sent(self, now: int) -> None: ...

    def ended(self, now: int) -> None:
        """One was answered."""

    def failed(self, now: int) -> None:
        """One was refused or broke off: it says nothing of the engine's speed."""

    def resume(self, now: int) -> None:
        """After a time in which nothing was to be sent."""


class SteadyPace:
    """Gaps of mean 1 over one rate (requests/s), whatever becomes of the requests: an open loop."""

    def __init__(self, gaps: Iterator[float], rate: float, now: int) -> None:
        self._gaps, self._rate = gaps, rate
        self.resume(now)

    def due(self, now: int, under_way: int, waiting: int, cap: int) -> int | None:
        return self._due

    def sent(self, now: int) -> None:
        self._due += int(next(self._gaps) * 1e9 / self._rate)

    def ended(self, now: int) -> None:
        pass

    def failed(self, now: int) -> None:
        pass

    def resume(self, now: int) -> None:
        self._due = now
        self.sent(now)


class FollowingPace:
    """Gaps of mean 1 over the rate that keeps a batch full with a short queue.

    The rate is that at which requests end, more while fewer are under way than wanted, less while
    more are: by Little's law a deviation is gone after the time that a request takes. Whatever the
    rate, two bounds hold. Below half of the cap one is sent at once, so the engine does not run
    out of work; while a quarter of the cap waits none is, so a cap or a machine that gets smaller
    is not flooded.
    """

    def __init__(self, gaps: Iterator[float], now: int) -> None:
        self._gaps = gaps
        self._left = next(gaps)
        """Of the gap before the next arrival, in expected arrivals."""
        self._rate, self._since = RATE_START, now
        """In force since then, requests/s."""
        self._ends: deque[int] = deque(maxlen=ENDS)
        self._not_before = now

    def due(self, now: int, under_way: int, waiting: int, cap: int) -> int | None:
        self._left -= self._rate * (now - self._since) / 1e9
        self._since, self._rate = now, 0.0
        if waiting >= max(2, cap // 4):
            return None
        if under_way < max(1, cap // 2):
            return max(now, self._not_before)
        wanted = cap + max(1, cap // 8)
        self._rate = min(self._measured(now) * max(0.0, 2 - under_way / wanted), MOST_RATE)
        if self._rate == 0:
            return None
        later = max(self._left, 0.0) * 1e9 / self._rate
        return max(now + int(later), self._not_before)

    def sent(self, now: int) -> None:
        late = max(min(self._left, 0.0), -MOST_LATE)
        self._left = next(self._gaps) + late
        self._not_before = now + int(1e9 / MOST_RATE)

    def ended(self, now: int) -> None:
        self._ends.append(now)

    def failed(self, now: int) -> None:
        self._not_before = now + REFUSED_NS

    def resume(self, now: int) -> None:
        self._ends.clear()  # of before; who knows what has changed since
        self._since = now

    def _measured(self, now: int) -> float:
        """Requests that end, per second."""
        while len(self._ends) > FEW_ENDS and now - self._ends[0] > ENDS_NS:
            self._ends.popleft()
        if len(self._ends) < FEW_ENDS:
            return RATE_START
        return len(self._ends) * 1e9 / max(now - self._ends[0], 1)
