"""The watchdog: work waits and nothing is computed. It says so, and why."""

from __future__ import annotations

from engine.scheduling.scheduler import Scheduler


class Watchdog:
    """`look` in every round; `reason` is None while all is well."""

    def __init__(self, stall_s: float) -> None:
        self._stall_ns = int(stall_s * 1e9)
        self._progress = 0
        self.reason: str | None = None

    def look(self, scheduler: Scheduler, computed: int, now: int) -> bool:
        """The round that began at `now` (ns) computes for `computed` requests. True when an alarm
        begins."""
        idle = not scheduler.has_work or not self._progress
        if computed or idle:
            self._progress, self.reason = now, None
            return False
        if self.reason is not None or now - self._progress < self._stall_ns:
            return False
        seconds = (now - self._progress) / 1e9
        self.reason = f"nothing computed for {seconds:.0f} s: {stall_cause(scheduler)}"
        return True


def stall_cause(scheduler: Scheduler) -> str:
    """What keeps the next request from being computed, with numbers."""
    pool, head = scheduler.pool, scheduler.waiting.head()
    if scheduler.running:
        return f"{len(scheduler.running)} requests run and get no tokens"
    if head is None:
        return "nobody waits"
    if scheduler.cap < 1:
        return "the cap is 0"
    if not pool.fits(scheduler.wanted(head)):
        return (
            f"{head.id} needs {scheduler.wanted(head)} pages, "
            f"{pool.available} of {pool.total} are available and nobody runs: pages are lost"
        )
    if pool.slabs and not pool.free_slabs:
        return f"all {pool.slabs} slabs are out and nobody runs: slabs are lost"
    return f"{len(scheduler.waiting)} wait and the policy starts nobody"
