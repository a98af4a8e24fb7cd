"""An event loop whose timers are good to some tens of microseconds.

The waiting of epoll counts in whole milliseconds, rounded up, so that asyncio's sleeps end
half a millisecond late on average, and up to one. For a load that is lateness of the generator.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any

if hasattr(select, "epoll"):

    class _PreciseSelector(selectors.EpollSelector):
        """Waits with select(2), which counts in microseconds, on the one descriptor of epoll."""

        def select(self, timeout: float | None = None) -> list[tuple[Any, int]]:
            if timeout is not None and 0 < timeout < 1:
                try:
                    select.select([self.fileno()], [], [], timeout)
                except InterruptedError:
                    return []
                timeout = 0
            return super().select(timeout)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop with the best timers there are on this platform."""
    if hasattr(select, "epoll"):
        selector = _PreciseSelector()
        if selector.fileno() < 1024:  # where select(2) ends
            return asyncio.SelectorEventLoop(selector)
        selector.close()
    return asyncio.new_event_loop()
