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
MOST_LOOKS = 4096
"""That one `kept` holds: of a longer while, every second look, then every fourth …"""


class Looks(list[Snapshot]):
    """Those of a while, evenly spread, however long it is."""

    def __init__(self) -> None:
        super().__init__()
        self._seen, self._every = 0, 1

    def take(self, look: Snapshot) -> None:
        if self._seen % self._every == 0:
            self.append(look)
        self._seen += 1
        if len(self) > MOST_LOOKS:
            del self[1::2]
            self._every *= 2


@dataclass
class Watch:
    """Polls on a thread while anybody is inside `on`; who comes in later shares it.

    A target without metrics gives Snapshots that say so.
    """

    base: str
    key: str | None = field(default=None, repr=False)
    newest: Snapshot | None = None
    told: Snapshot | None = None
    """The newest with numbers of its own moment."""
    restarts: int = 0
    """How often the target's counters began again."""
    seconds: float = 0.0
    """Watched so far, up to the newest look."""
    version: str | None = None
    """Of the target, once it has told; None: not told."""
    _asked: bool = field(default=False, repr=False)
    _keepers: list[Looks] = field(default_factory=list, repr=False)
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

    @contextmanager
    def kept(self) -> Iterator[Looks]:
        """What is seen from now on, until the block is left. Inside `on` only."""
        looks = Looks()
        self._keepers.append(looks)
        try:
            yield looks
        finally:
            self._keepers = [kept for kept in self._keepers if kept is not looks]

    def _take(self, engine: RemoteEngine, begun: float, before: int) -> None:
        self.take(engine.poll())
        if not self._asked and self.told is not None:
            self._asked, self.version = True, engine.version()
        self.restarts, self.seconds = before + engine.restarts, time.monotonic() - begun

    def take(self, look: Snapshot) -> None:
        self.newest = look
        if look.source.state == "live":
            self.told = look
        for looks in self._keepers:
            looks.take(look)
