"""Continuous batching: decodes first, then prompts under way, then admissions. No torch.

A step's work is handed out in that order (decodes one token each, oldest first) until the token
budget is spent. Who finishes leaves after the step and the gap is filled in the next. A long
prompt delays nobody by more than one budget, and nobody's decode waits for an admission.
"""

from __future__ import annotations

from engine.request import FinishReason, Request, Status
from engine.scheduling.plan import Plan, PlanItem
from engine.scheduling.room import Room, room_in
from engine.scheduling.scheduler import PREEMPTIONS_MAX, Scheduler


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
                plan.items.append(PlanItem(request, done, 1, 1))
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
        room: Room | None = None
        while candidates := scheduler.waiting.candidates():
            plan.bound_by = self._limit(scheduler, budget)
            if plan.bound_by:
                return
            room = room or room_in(scheduler)
            request = room.pick(candidates)
            if request is None:
                plan.bound_by = "kv"
                return
            if request is not candidates[0]:
                candidates[0].passed += 1
            scheduler.start(request, now)
            tokens = min(request.num_pending, budget)
            grown = scheduler.grow(request, tokens)
            assert grown, "admission promised room"
            plan.items.append(scheduler.item(request, tokens))
            budget -= tokens
            room.take(request)
        plan.bound_by = "queue"

    def _limit(self, scheduler: Scheduler, budget: int) -> str:
        if len(scheduler.running) >= scheduler.cap:
            return "cap"
        if scheduler.pool.slabs and not scheduler.pool.free_slabs:
            return "cap"
        return "" if budget else "token_budget"

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
