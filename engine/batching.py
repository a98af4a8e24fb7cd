"""Who gets what in a step: the continuous policy, the static baseline, the moving cap. No torch.

**Continuous.** A step's work is handed out in this order: decodes (one token each, oldest
first), prompts under way, then admissions, until the token budget is spent. Who finishes
leaves after the step and the gap is filled in the next. A long prompt delays nobody by more
than one budget, and nobody's decode waits for an admission.

**Static.** The classical baseline: collect a batch up to the cap or until the first has waited
long enough, give each row room to its end, run until all have finished. A finished row keeps
its slot and is computed on (its result is thrown away), because a static batch has no way to
take it out; that, and not bad code, is what continuous batching saves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import EngineConfig
from engine.pages import ContiguousPool, PagePool
from engine.prefix import PrefixIndex
from engine.request import FinishReason, Request, Status
from engine.scheduler import PREEMPTIONS_MAX, Plan, PlanItem, Scheduler


def make_scheduler(
    config: EngineConfig, pages: int, slabs: int, max_model_len: int, identity: str = ""
) -> Scheduler:
    """The scheduler and pool that the settings ask for.

    `identity` tells model, KV format and calibration apart in the prefix index. The prefix
    cache needs pages that can be shared, so the baselines have none.
    """
    paged = (config.policy, config.allocator) == ("continuous", "paged")
    pool: PagePool
    if config.allocator == "contiguous":
        pool = ContiguousPool(pages, config.page_tokens, slabs)
    else:
        index = PrefixIndex(identity) if paged and config.prefix_cache else None
        pool = PagePool(pages, config.page_tokens, slabs, index)
    policy: Static | Continuous = Continuous()
    if config.policy == "static":
        policy = Static(int(config.max_wait_ms * 1e6), config.pad_prompts)
    reserve = config.reserve or ("known" if paged else "final")
    cap = config.min_batch if config.dynamic_batch else config.max_batch
    return Scheduler(pool, policy, cap, config.token_budget, max_model_len, reserve)


class Continuous:
    def leave(self, scheduler: Scheduler, request: Request, reason: FinishReason) -> None:
        scheduler.release(request)

    def kept(self) -> list[Request]:
        return []

    def fill(self, scheduler: Scheduler, plan: Plan, now: int) -> None:
        budget, size = scheduler.token_budget, scheduler.pool.page_tokens
        prompts: list[Request] = []
        for request in list(scheduler.running.values()):
            done = request.num_computed
            if request.num_tokens - done > 1:
                prompts.append(request)
            elif budget == 0:
                plan.bound_by = "token_budget"
                break
            elif request.status is Status.RUNNING and (
                done % size or self._make_room(scheduler, request, 1, plan)
            ):
                plan.items.append(PlanItem(request, done, 1, True))
                budget -= 1
        for request in prompts:
            if budget == 0:
                plan.bound_by = "token_budget"
                break
            tokens = min(request.num_pending, budget)
            if request.status is Status.RUNNING and self._make_room(
                scheduler, request, tokens, plan
            ):
                plan.items.append(scheduler.item(request, tokens))
                budget -= tokens
        if plan.preempted or plan.ended:
            plan.items = [item for item in plan.items if item.request.status is Status.RUNNING]
        if not plan.preempted:
            self._admit(scheduler, budget, now, plan)

    def _admit(self, scheduler: Scheduler, budget: int, now: int, plan: Plan) -> None:
        if not scheduler.waiting or scheduler.paused:
            return
        room: int | None = None
        while candidates := scheduler.waiting.candidates():
            plan.bound_by = self._limit(scheduler, budget)
            if plan.bound_by:
                return
            if room is None:
                claims = sum(map(scheduler.claim, scheduler.running.values()))
                room = scheduler.pool.available - claims
            for request in candidates:
                if self._fits(scheduler, request, room):
                    break
            else:
                plan.bound_by = "kv"
                return
            if request is not candidates[0]:
                candidates[0].passed += 1
            before = scheduler.pool.available
            scheduler.start(request, now)
            tokens = min(request.num_pending, budget)
            grown = scheduler.grow(request, tokens)
            assert grown, "admission promised room"
            plan.items.append(scheduler.item(request, tokens))
            budget -= tokens
            room -= before - scheduler.pool.available + scheduler.claim(request)
        plan.bound_by = "queue"

    def _limit(self, scheduler: Scheduler, budget: int) -> str:
        if len(scheduler.running) >= scheduler.cap:
            return "cap"
        if scheduler.pool.slabs and not scheduler.pool.free_slabs:
            return "cap"
        return "" if budget else "token_budget"

    def _fits(self, scheduler: Scheduler, request: Request, room: int) -> bool:
        """One that runs alone may have the whole pool: something always makes progress."""
        pool = scheduler.pool
        if scheduler.reserve != "known":
            return pool.fits(scheduler.wanted(request))
        return scheduler.wanted(request) <= (room if scheduler.running else pool.available)

    def _make_room(self, scheduler: Scheduler, request: Request, tokens: int, plan: Plan) -> bool:
        """Pages for the request's next tokens, taken from younger requests if need be."""
        while not self._may_grow(scheduler, request, tokens, plan):
            if len(scheduler.running) == 1:
                scheduler.end(request, FinishReason.KV_CAPACITY, plan)
                return False
            victim = self._victim(scheduler)
            scheduler.preempt(victim, plan)
            if victim is request:
                return False
        return True

    def _may_grow(self, scheduler: Scheduler, request: Request, tokens: int, plan: Plan) -> bool:
        """What protected requests were promised is not for others to take."""
        pool = scheduler.pool
        missing = pool.pages_for(request.num_computed + tokens) - len(request.pages)
        if missing <= 0:
            return True
        if plan.promised is None:
            plan.promised = sum(
                scheduler.claim(r)
                for r in scheduler.running.values()
                if r.preemptions >= PREEMPTIONS_MAX
            )
        if request.preemptions >= PREEMPTIONS_MAX:
            plan.promised -= missing
        elif missing > pool.available - plan.promised:
            return False
        return scheduler.grow(request, tokens)

    def _victim(self, scheduler: Scheduler) -> Request:
        """The youngest that is not protected; protected ones never lack room themselves."""
        running = list(reversed(scheduler.running.values()))
        return next((r for r in running if r.preemptions < PREEMPTIONS_MAX), running[0])


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
                plan.items.append(PlanItem(row, row.num_computed - 1, 1, False, padding=True))
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
        return PlanItem(row, 0, tokens, False, padding=True)


@dataclass(frozen=True)
class Objective:
    """What the moving cap aims at."""

    least: int
    most: int
    tpot_ms: float | None = None
    """Longest acceptable time between a request's tokens; None: only the queue counts."""
    max_wait_ms: float = 2000.0
    """A request that has waited so long is let in if the objective allows it at all."""


class BatchController:
    """Moves the cap: additive increase, multiplicative decrease, and a band of rest between.

    Up while requests wait at the cap and steps are well below the objective; down at once when
    they are above it, and then no higher than that for a while, so that constant load settles
    instead of swinging; slowly down while the batch is far from full, so that a sudden burst
    does not start from a size that only a queue could justify.
    """

    INTERVAL_NS = 500_000_000
    ABOVE, BELOW = 1.05, 0.90
    """Of the objective: above the one is too slow, below the other there is room."""
    DECREASE = 0.85
    CEILING_NS = 30_000_000_000
    """So long a cap that proved too large is not tried again."""
    SMOOTHING = 0.2

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._step_ms: float | None = None
        self._due = 0
        self._ceiling = objective.most
        self._ceiling_until = 0
        self._slack_rounds = 0

    def observe(self, step_ms: float) -> None:
        """A step that decoded took so long."""
        before = self._step_ms
        self._step_ms = step_ms if before is None else before + self.SMOOTHING * (step_ms - before)

    def decide(
        self, now: int, cap: int, running: int, waiting: int, oldest_wait_ms: float
    ) -> tuple[int, str] | None:
        """A new cap and why, or None to leave it. `now` in monotonic ns."""
        if now < self._due:
            return None
        self._due = now + self.INTERVAL_NS
        if now >= self._ceiling_until:
            self._ceiling = self.objective.most
        wanted, reason = self._wanted(now, cap, running, waiting, oldest_wait_ms)
        wanted = min(max(wanted, self.objective.least), self.objective.most)
        return None if wanted == cap else (wanted, reason)

    def _wanted(
        self, now: int, cap: int, running: int, waiting: int, oldest_wait_ms: float
    ) -> tuple[int, str]:
        goal, step = self.objective.tpot_ms, self._step_ms
        if goal is not None and step is not None and step > goal * self.ABOVE:
            self._ceiling, self._ceiling_until = cap - 1, now + self.CEILING_NS
            self._slack_rounds = 0
            return int(cap * self.DECREASE), f"step {step:.0f} ms is over {goal:.0f} ms"
        room = goal is None or step is None or step < goal * self.BELOW
        if waiting and running >= cap and room and cap < self._ceiling:
            self._slack_rounds = 0
            late = oldest_wait_ms > self.objective.max_wait_ms
            more = max(2, cap // 4) if late else max(1, cap // 16)
            why = f"oldest has waited {oldest_wait_ms:.0f} ms" if late else f"{waiting} wait"
            return min(cap + more, self._ceiling), why
        if not waiting and running <= cap // 2:
            self._slack_rounds += 1
            if self._slack_rounds >= 10:
                return cap - max(1, cap // 16), f"only {running} run and nobody waits"
        else:
            self._slack_rounds = 0
        return cap, ""
