"""Member: one replica of a fleet, and how many requests it has at a moment. No torch."""

from __future__ import annotations

from collections import deque

from engine.request import FinishReason
from engine.simulated.replica import Replica


class Member:
    """One replica of a fleet."""

    def __init__(self, number: int, replica: Replica, takes_from: int, block_tokens: int) -> None:
        self.number, self.replica = number, replica
        self.takes_from = takes_from
        """Of its clock, ns."""
        pool = replica.loop.scheduler.pool
        self.blocks_kept = max(pool.total * pool.page_tokens // block_tokens, 1)
        self.fate: str | None = None
        """Why all that it has ends with it."""
        self._open = 0
        self._ended: deque[int] = deque()
        """Ends that the step under way has brought, and that lie ahead."""
        self._quiet_until = 0
        """Nobody ends before: until then the replica need not live on to be counted."""

    def outstanding(self, at: int) -> int:
        if at >= self._quiet_until:
            self.replica.run_until(at)
            self._quiet_until = self.replica.quiet_until()
        while self._ended and self._ended[0] <= at:
            self._ended.popleft()
            self._open -= 1
        return self._open

    def take(self) -> None:
        self._open += 1
        self._quiet_until = min(self._quiet_until, self.replica.quiet_until())

    def gave_back(self, at: int) -> None:
        self._ended.append(at)

    def end(self, fate: str) -> None:
        self.fate = fate
        self.replica.loop.end(FinishReason.ERROR, f"the replica is gone: {fate}")
