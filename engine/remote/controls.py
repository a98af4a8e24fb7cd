"""The controls of an engine for one that is only watched: each says why it is out of reach."""

from __future__ import annotations

from engine.observing.watchable import Watchable
from engine.remote.errors import NotAvailable


class OutOfReach(Watchable):
    """`why_not` says why."""

    def set_cap(self, n: int) -> None:
        raise NotAvailable(self.why_not("set_cap"))

    def set_dynamic(self, dynamic: bool) -> None:
        raise NotAvailable(self.why_not("set_dynamic"))

    def set_paused(self, paused: bool) -> None:
        raise NotAvailable(self.why_not("set_paused"))

    def set_max_wait(self, milliseconds: float) -> None:
        raise NotAvailable(self.why_not("set_max_wait"))

    def set_draining(self, draining: bool) -> None:
        raise NotAvailable(self.why_not("set_draining"))
