"""What a target's metrics say while a check goes on: one watch for all of its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.snapshot import Snapshot

if TYPE_CHECKING:
    from engine.remote import RemoteEngine

POLL_S = 0.25


@dataclass
class Watch:
    """Polls on a thread while anybody is inside `on`; who comes in later shares it.

    A target without metrics gives Snapshots that say so.
    """

    base: str
    key: str | None = field(default=None, repr=False)
    series: list[Snapshot] = field(default_factory=list)
    restarts: int = 0
    """How often the target's counters began again."""
    seconds: float = 0.0
    """Watched so far, up to the newest look."""
    version: str | None = None
    """Of the target, once it has told; None: not told."""
    _asked: bool = field(default=False, repr=False)
    _engine: RemoteEngine | None = field(default=None, repr=False)

    @contextmanager
    def on(self) -> Iterator[None]:
        from engine.remote import attach

        if self._engine is not None:
            yield
            return
        self._engine, ended = attach(self.base, self.key), threading.Event()
        begun, restarts = time.monotonic() - self.seconds, self.restarts

        def poll(engine: RemoteEngine) -> None:
            while not ended.wait(POLL_S):
                self._take(engine, begun, restarts)

        self._take(self._engine, begun, restarts)  # whoever is inside has a first look
        thread = threading.Thread(
            target=poll, args=(self._engine,), name="check-watch", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(10)
            self._engine.stop()
            self._engine = None

    def look(self) -> Snapshot:
        """One more, now. Inside `on` only."""
        assert self._engine is not None, "nobody watches"
        return self._engine.poll()

    def live(self, since: int = 0) -> list[Snapshot]:
        """Those with numbers of their own moment, after the first `since` looks."""
        return [s for s in self.series[since:] if s.source.state == "live"]

    def _take(self, engine: RemoteEngine, begun: float, before: int) -> None:
        self.series.append(engine.poll())
        if not self._asked and self.series[-1].source.state == "live":
            self._asked, self.version = True, engine.version()
        self.restarts, self.seconds = before + engine.restarts, time.monotonic() - begun
