"""When an engine computed: how much of any span of time was its own, and how much another's."""

from __future__ import annotations

import threading
from bisect import bisect_right

KEPT = 100_000
"""Steps that are remembered; what was earlier counts as idle."""


class BusyLog:
    """Spans of computing, in order. One thread adds, any may ask; times are ns."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._before: list[int] = []
        """Computed before the start of each span."""
        self._last = (0, 0)
        """End of the newest span, and all that was computed until then."""
        self._lock = threading.Lock()

    def add(self, start: int, end: int) -> None:
        with self._lock:
            total = self._last[1]
            self._starts.append(start)
            self._before.append(total)
            self._last = (end, total + end - start)
            if len(self._starts) > KEPT:
                del self._starts[: KEPT // 2], self._before[: KEPT // 2]

    def within(self, start: int, end: int) -> int:
        """Computed between two moments."""
        with self._lock:
            return self._until(end) - self._until(start)

    def _until(self, moment: int) -> int:
        i = bisect_right(self._starts, moment) - 1
        if i < 0:
            return self._before[0] if self._before else 0
        after = self._before[i + 1] if i + 1 < len(self._before) else self._last[1]
        return min(self._before[i] + moment - self._starts[i], after)
