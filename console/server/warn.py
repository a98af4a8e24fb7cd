"""Warnings of the server: one line of each kind a minute, with how many it stands for.

No line has text of a request in it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

INTERVAL_S = 60.0


class Limited:
    """Safe from any thread."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, int]] = {}
        """By kind: when its last line was written, and how many were not since."""

    def warn(self, kind: str, text: str) -> None:
        """`kind` is one of few names of ours: it is remembered."""
        with self._lock:
            now = self._clock()
            last, missed = self._last.get(kind, (-INTERVAL_S, 0))
            if now - last < INTERVAL_S:
                self._last[kind] = (last, missed + 1)
                return
            self._last[kind] = (now, 0)
        more = f" (and {missed} more of the kind since the last line)" if missed else ""
        self._logger.warning("%s%s", text, more)


warnings = Limited(logging.getLogger("evewatch.server"))


class OncePerMinute(logging.Filter):
    """For a logger that is not ours: lets one record of each message through a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, kind = self._clock(), str(record.msg)
        if now - self._last.get(kind, -INTERVAL_S) < INTERVAL_S:
            return False
        self._last[kind] = now
        return True
