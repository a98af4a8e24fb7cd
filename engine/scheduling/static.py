"""Static batching, the classical baseline: a batch is collected, and runs until all have finished.

Collected up to the cap, or until the first has waited long enough; each row has room to its end.
A finished row keeps its slot and is computed on (its result is thrown away), because a static
batch has no way to take it out; that, and not bad code, is what continuous batching saves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.request import FinishReason, Request, Status
from engine.scheduling.plan import Plan, PlanItem
from engine.scheduling.scheduler import Scheduler


@dataclass
class Static:
    """`max_wait_ns`: a batch starts, full or not, when its first request has waited so long."""

    max_wait_ns: int
    pad_prompts: bool = False
    """Compute what a rectangular batch pads, before the prompts themselves."""
    batch: list[Request] = field(default_factory=list)
    """The rows, finished ones too, until the last has finished."""
    padded_tokens: int = 0
    """Computed for finished rows, and prompt places that a rectangular batch would pad."""
    _rectangle: int = 0
    """Padding that is still to be computed for this batch."""

    def leave(self, scheduler: Scheduler, request: Request, reason: FinishReason) -> None:
        """A row that ran to its end stays in the batch; with the last one all go."""
        if request in self.batch and reason not in (FinishReason.STOP, FinishReason.LENGTH):
            self.batch.remove(request)
        if request not in self.batch:
            scheduler.release(request)
        if all(row.status is Status.FINISHED for row in self.batch):
            for row in self.batch:
                scheduler.release(row)
            self.batch.clear()

    def kept(self) -> list[Request]:
        return [row for row in self.batch if row.status is Status.FINISHED]

    def fill(self, scheduler: Scheduler, plan: Plan, now: int) -> None:
        if not self.batch and self._is_due(scheduler, now):
            self._collect(scheduler, now)
        plan.bound_by = "batch" if scheduler.waiting else "queue"
        budget = scheduler.token_budget
        if self._rectangle and self.batch:
            plan.items.append(self._padding(budget))
            return
        for row in self.batch:
            if row.status is Status.FINISHED:
                plan.items.append(PlanItem(row, row.num_computed - 1, 1, 0, padding=True))
                self.padded_tokens += 1
            elif budget:
                tokens = min(row.num_pending, budget)
                plan.items.append(scheduler.item(row, tokens))
                budget -= tokens

    def _is_due(self, scheduler: Scheduler, now: int) -> bool:
        oldest = scheduler.waiting.oldest_arrival()
        if oldest is None or scheduler.paused:
            return False
        return len(scheduler.waiting) >= scheduler.cap or now - oldest >= self.max_wait_ns

    def _collect(self, scheduler: Scheduler, now: int) -> None:
        """The first ones in turn that fit together, each with room to its end."""
        while len(self.batch) < scheduler.cap and (head := scheduler.waiting.head()):
            if not scheduler.pool.fits(scheduler.wanted(head)):
                break
            scheduler.start(head, now)
            self.batch.append(head)
        longest = max((len(row.prompt_ids) for row in self.batch), default=0)
        padding = sum(longest - len(row.prompt_ids) for row in self.batch)
        self.padded_tokens += padding
        self._rectangle = padding if self.pad_prompts else 0

    def _padding(self, budget: int) -> PlanItem:
        """Some of the padding, computed in the longest row's place, which has nothing in it yet."""
        row = max(self.batch, key=lambda row: len(row.prompt_ids))
        tokens = min(self._rectangle, len(row.prompt_ids), budget)
        self._rectangle -= tokens
        return PlanItem(row, 0, tokens, 0, padding=True)
