"""Whether the machine let a test have its time: others' work on its cores is no finding."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

NAP_S = 0.005
QUIET_S = 0.0003
"""Whoever waits longer for a core than this, on average, has to share it."""
TRIES = 6
Report = TypeVar("Report")


class Disturbance:
    """A thread that naps, and how long it waited for a core each time it woke.

    The kernel's own count (Linux; elsewhere nothing is known and it is 0): a thread that waits
    for another one of its interpreter does not wait for a core.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0
        """On average, when it has ended."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._nap, daemon=True)

    def __enter__(self) -> Disturbance:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _nap(self) -> None:
        naps = 0
        while not self._ended.is_set():
            time.sleep(NAP_S)
            naps += 1
        with suppress(OSError):
            _, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
            self.waited_s = int(waited_ns) / 1e9 / max(naps, 1)


def undisturbed(run: Callable[[], Report], right: Callable[[Report], object]) -> Report:
    """What `run` returns, if it is right or the machine was quiet; else it is run again.

    A diagnosis of times that is wrong on a quiet machine is wrong. On a busy one it may well be
    about what the others did, and says nothing.
    """
    for _ in range(TRIES):
        with Disturbance() as disturbance:
            report = run()
        if right(report) or disturbance.waited_s < QUIET_S:
            return report
    pytest.skip(f"too busy a machine: {1e3 * disturbance.waited_s:.1f} ms for a core each time")
