"""The engines of this process that have a model in memory: what a console may show."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from engine.snapshot import Snapshot


class Seen(Protocol):
    @property
    def stale_after_s(self) -> float: ...

    def snapshot(self) -> Snapshot: ...

    def watch_pages(self) -> None: ...


_engines: list[weakref.ref[Seen]] = []
"""The oldest first. One that is dropped without an end is forgotten."""
_lock = threading.Lock()


def began(engine: Seen) -> None:
    with _lock:
        _engines.append(weakref.ref(engine))


def ended(engine: Seen) -> None:
    with _lock:
        _engines[:] = [known for known in _engines if known() not in (engine, None)]


def newest(besides: object) -> Seen | None:
    """The engine that was loaded last and has not ended, `besides` one."""
    with _lock:
        alive = [known() for known in _engines]
    return next((one for one in reversed(alive) if one is not None and one is not besides), None)
