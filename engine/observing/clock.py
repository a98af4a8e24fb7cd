"""Time as a Loop and everything that observes it reads it: the machine's, or a virtual one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of one clock."""

    def ns(self) -> int:
        """Monotonic nanoseconds; 0 stands for never."""
        ...

    def unix(self) -> float:
        """Seconds since 1970, for what people read."""
        ...


class MachineClock:
    """The machine's own."""

    ns = staticmethod(time.monotonic_ns)
    unix = staticmethod(time.time)
