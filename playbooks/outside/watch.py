"""What a target's metrics say while something goes on there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.snapshot import Snapshot
from playbooks.checkup.site import UrlSite

POLL_S = 0.5


@dataclass
class Watch:
    """Snapshots of a target while something goes on there."""

    series: list[Snapshot] = field(default_factory=list)
    restarts: int = 0
    """How often its counters began again."""

    @contextmanager
    def on(self, site: UrlSite) -> Iterator[None]:
        """Polls on a thread. A target without metrics gives Snapshots that say so."""
        from engine.remote import attach

        engine, ended = attach(site.spec.base, site.key), threading.Event()

        def poll() -> None:
            while True:
                self.series.append(engine.poll())
                self.restarts = engine.restarts
                if ended.wait(POLL_S):
                    return

        thread = threading.Thread(target=poll, name="check-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(10)
            engine.stop()

    @property
    def live(self) -> list[Snapshot]:
        """Those with numbers of their own moment."""
        return [s for s in self.series if s.source.state == "live"]
