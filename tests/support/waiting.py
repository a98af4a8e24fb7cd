"""Waiting for a state to come true, as long as the slowest machine needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

CEILING_S = 120.0
"""Far beyond what anything takes: it ends a test that hangs, and tells nothing about speed."""


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + CEILING_S
    while not true():
        assert time.monotonic() < end, f"it did not come true in {CEILING_S:.0f} s"
        time.sleep(0.005)


async def until_shown(pilot: Any, true: Callable[[], object]) -> None:
    """The same while the application under `pilot` goes on."""
    end = time.monotonic() + CEILING_S
    while not true():
        assert time.monotonic() < end, f"it did not come true in {CEILING_S:.0f} s"
        await pilot.pause(0.01)
