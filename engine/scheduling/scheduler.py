"""The scheduler: requests + pages + budget -> Plan. No torch, no clock of its own.

One rule instead of phases: a request has `num_tokens` known and `num_computed` in the
cache, and a Plan says how many tokens each one catches up in this step. Prefill, chunked
prefill, decode and recompute after preemption are all the same thing.

This module holds the sets (waiting, running), what each request holds, and the moves between
them. Which request gets what in a step is the policy's business: engine/scheduling/continuous.py.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Protocol

from engine.config import GROWING
from engine.request import FinishReason, Request, Status
from engine.scheduling.lengths import OutputLengths
from engine.scheduling.pages import PagePool
from engine.scheduling.plan import Plan, PlanItem
from engine.scheduling.prefix import PrefixIndex
from engine.scheduling.shadow import ContiguousShadow
from engine.scheduling.waiting import WaitingQueue

PREEMPTIONS_MAX = 2
"""A request preempted so often is protected: it comes back only with room to its end."""
TAX_HIGH, TAX_LOW = 0.10, 0.05
"""Recomputed / useful tokens above which admission promises everybody room to the end, and
below which it trusts again that most outputs end early."""


class Policy(Protocol):
    """Fills a plan. Has no state about requests but what it names itself."""

    def fill(self, scheduler: Scheduler, plan: Plan, now: int) -> None: ...

    def leave(self, scheduler: Scheduler, request: Request, reason: FinishReason) -> None:
        """A request has ended: release what it holds, now or when the policy can."""
        ...

    def kept(self) -> list[Request]:
        """Ended requests whose pages are not released yet."""
        ...


class Scheduler:
    """Owns the waiting and running sets and every page they hold.

    `cap` may move while it runs; `reserve` says how many tokens a request gets room for when it
    is admitted ("known": what it knows, "predicted": the same while those that run will probably
    have what they need, "final": to its end, "max": max_model_len).
    """

    def __init__(
        self,
        pool: PagePool,
        policy: Policy,
        cap: int,
        token_budget: int,
        max_model_len: int,
        reserve: str = "known",
    ) -> None:
        self.pool = pool
        self.policy = policy
        self.cap = cap
        self.token_budget = token_budget
        self.max_model_len = max_model_len
        self.reserve = reserve
        self.lengths = OutputLengths() if reserve == "predicted" else None
        self.paused = False
        """Admit nobody; running requests go on."""
        self.waiting = WaitingQueue()
        self.running: OrderedDict[str, Request] = OrderedDict()
        """In order of admission."""
        self.shadow = ContiguousShadow(pool.total * pool.page_tokens)
        self.useful_tokens = 0
        self.recomputed_tokens = 0
        self._cautious = False
        self._lives = itertools.count(1)
        self._deadlines: list[tuple[int, int, Request]] = []

    # --- in and out -----------------------------------------------------------------

    def refusal(self, request: Request) -> str | None:
        """Why the request can never be served, or None."""
        prompt = len(request.prompt_ids)
        if prompt == 0:
            return "the prompt has no tokens; send at least one"
        if prompt >= self.max_model_len:
            return (
                f"the prompt has {prompt} tokens and the model's limit, prompt and output "
                f"together, is {self.max_model_len}; shorten it"
            )
        capacity = self.pool.total * self.pool.page_tokens
        if prompt + 1 > capacity:
            return (
                f"the prompt has {prompt} tokens and the whole KV pool holds {capacity}; "
                "shorten it or raise kv_memory"
            )
        reserved = self.pages_at_admission(request) * self.pool.page_tokens
        if not self.grows and reserved > capacity:
            return (
                f"reserving {reserved} tokens for it is more than the whole KV pool's {capacity}; "
                "ask for fewer tokens or raise kv_memory"
            )
        return None

    def add(self, request: Request) -> None:
        """Queue a request that `refusal` let through."""
        request.status = Status.WAITING
        if self.lengths is not None:
            request.length_class = self.lengths.class_of(request)
        self.waiting.add(request)
        if request.deadline:
            heapq.heappush(self._deadlines, (request.deadline, request.number, request))

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request in any state, from either set; harmless when it has ended."""
        if request.status is Status.FINISHED:
            return
        self.waiting.remove(request)
        self.running.pop(request.id, None)
        request.status = Status.FINISHED
        request.finish_reason = reason
        if self.lengths is not None:
            self.lengths.learn(request, reason, others_wait=bool(self.waiting))
        self.policy.leave(self, request, reason)

    def release(self, request: Request) -> None:
        """The only way back for pages and slabs. Deep pages first: they are evicted first."""
        self.pool.release(reversed(request.pages))
        request.pages.clear()
        request.num_computed = request.prefix_pages = 0
        if request.slab >= 0:
            self.pool.return_slab(request.slab)
            request.slab = -1
        self.shadow.release(request.id)

    def holders(self) -> list[Request]:
        """Everybody who has pages: running requests, and ended ones that a policy keeps."""
        return [*self.running.values(), *self.policy.kept()]

    @property
    def tokens_in_cache(self) -> int:
        return sum(request.num_computed for request in self.running.values())

    @property
    def has_work(self) -> bool:
        """Something runs, or waits and may start."""
        return bool(self.running) or (bool(self.waiting) and not self.paused)

    @property
    def next_deadline(self) -> int | None:
        """The earliest (ns) that may end somebody; None: there is none."""
        return self._deadlines[0][0] if self._deadlines else None

    @property
    def preemption_tax(self) -> float:
        """Recomputed over useful tokens."""
        return self.recomputed_tokens / self.useful_tokens if self.useful_tokens else 0.0

    @property
    def grows(self) -> bool:
        """A request is given pages as it fills them, not all of them when it starts."""
        return self.reserve in GROWING

    @property
    def predicts(self) -> bool:
        """Admission goes by the lengths that outputs will probably have."""
        return self.lengths is not None and self.lengths.hold

    # --- planning -------------------------------------------------------------------

    def plan(self, now: int) -> Plan:
        """The next step's work at monotonic time `now` (ns). Pages are taken here."""
        plan = Plan()
        self.pool.now = now
        self._expire(now, plan)
        tax = self.preemption_tax
        self._cautious = tax > (TAX_LOW if self._cautious else TAX_HIGH)
        self.policy.fill(self, plan, now)
        return plan

    def _expire(self, now: int, plan: Plan) -> None:
        if len(self._deadlines) > 64 + 2 * (len(self.waiting) + len(self.running)):
            self._deadlines = [d for d in self._deadlines if d[2].status is not Status.FINISHED]
            heapq.heapify(self._deadlines)  # ended requests must not pile up in the heap
        while self._deadlines and (
            self._deadlines[0][0] <= now or self._deadlines[0][2].status is Status.FINISHED
        ):
            request = heapq.heappop(self._deadlines)[2]
            if request.status is not Status.FINISHED:
                self.end(request, FinishReason.TIMEOUT, plan)

    # --- moves, for policies ----------------------------------------------------------

    def end(self, request: Request, reason: FinishReason, plan: Plan) -> None:
        self.finish(request, reason)
        plan.ended.append((request, reason))

    def start(self, request: Request, now: int) -> None:
        """From waiting to running, with a slab, prefix hits and what the reserve asks for.

        The caller has seen to it that there is room.
        """
        self.waiting.remove(request)
        self.running[request.id] = request
        request.status = Status.RUNNING
        request.life = next(self._lives)
        if self.pool.slabs:
            slab = self.pool.take_slab()
            assert slab is not None
            request.slab = slab
        self._share_prefix(request)
        if not self.grows:
            pages = self.pool.allocate(self.pages_at_admission(request) - len(request.pages))
            assert pages is not None
            request.pages.extend(pages)
        self.shadow.admit(request.id, self.final_tokens(request))
        if not request.stamps.first_scheduled:
            request.stamps.first_scheduled = now
            if self.lengths is not None:
                self.lengths.expect(request, self.final_tokens(request) - len(request.prompt_ids))

    def preempt(self, request: Request, plan: Plan) -> None:
        """Back to the queue; what it had computed is computed again, but for prefix hits."""
        self.release(request)
        self.running.pop(request.id)
        request.status = Status.PREEMPTED
        request.preemptions += 1
        if self.lengths is not None:
            self.lengths.preempted()
        self.waiting.put_back(request)
        plan.preempted.append(request)
        plan.bound_by = "kv"

    def grow(self, request: Request, tokens: int) -> bool:
        """Pages for the next `tokens` tokens; False, and nothing taken, if there are not."""
        missing = self.pool.pages_for(request.num_computed + tokens) - len(request.pages)
        if missing <= 0:
            return True
        pages = self.pool.allocate(missing)
        if pages is None:
            return False
        request.pages.extend(pages)
        return True

    def item(self, request: Request, tokens: int) -> PlanItem:
        done = request.num_computed
        return PlanItem(request, done, tokens, int(done + tokens == request.num_tokens))

    # --- how much room ----------------------------------------------------------------

    def final_tokens(self, request: Request) -> int:
        """Tokens of the request at its longest."""
        longest = len(request.prompt_ids) + request.params.max_tokens
        return min(longest, self.max_model_len, self.pool.total * self.pool.page_tokens)

    def pages_at_admission(self, request: Request) -> int:
        """Pages it must be given when it starts."""
        if self.reserve == "max":
            return self.pool.pages_for(self.max_model_len)
        if self.reserve == "final":
            return self.pool.pages_for(self.final_tokens(request))
        return self.pool.pages_for(request.num_tokens + 1)

    def claim(self, request: Request) -> int:
        """Pages that are kept for a running request beside those it holds.

        For what it knows already and one page of growth, if it can grow; to its very end where
        it is protected from preemption, and for everybody while preemption has cost too much
        lately.
        """
        if self.is_protected(request):
            return max(0, self.pool.pages_for(self.final_tokens(request)) - len(request.pages))
        known = self.pool.pages_for(request.num_tokens) - len(request.pages)
        final = self.pool.pages_for(self.final_tokens(request)) - len(request.pages)
        return max(0, min(max(0, known) + 1, final))

    def is_protected(self, request: Request) -> bool:
        cautious = self._cautious and not self.predicts
        return cautious or request.preemptions >= PREEMPTIONS_MAX

    def missing(self, request: Request) -> int:
        """Of the `wanted` pages, those that nobody holds already for the same prefix."""
        index = self.pool.index
        if index is None:
            return self.wanted(request)
        return self.wanted(request) - self.pool.count_held(self._known_pages(request, index))

    def wanted(self, request: Request) -> int:
        """Pages that must be there to admit it: what it takes now, and its claim after that."""
        if not self.grows:
            return self.pages_at_admission(request)
        if self.is_protected(request) and self.running:
            return self.pool.pages_for(self.final_tokens(request))
        return self.pool.pages_for(request.num_tokens + 1)

    # --- prefix -----------------------------------------------------------------------

    def _share_prefix(self, request: Request) -> None:
        """Take the pages that hold the beginning of what it knows, if any do.

        At least one token is left to compute, for its logits.
        """
        index = self.pool.index
        if index is None:
            return
        pages = self._known_pages(request, index)
        self.pool.share(pages)
        request.pages.extend(pages)
        request.prefix_pages = len(pages)
        request.num_computed = len(pages) * self.pool.page_tokens
        request.node = index.node_after(pages[-1] if pages else None)
        index.queried_tokens += request.num_tokens - 1
        index.hit_tokens += request.num_computed

    def _known_pages(self, request: Request, index: PrefixIndex) -> list[int]:
        known = request.token_ids(0, request.num_tokens - 1)
        return index.find(known, self.pool.page_tokens)

    # --- applying -------------------------------------------------------------------

    def accept(self, items: Iterable[PlanItem]) -> list[PlanItem]:
        """The items' tokens are in the cache: move positions. Gives those that filled a page."""
        size, useful = self.pool.page_tokens, 0
        filled = []
        for item in items:
            request, start, tokens, _, padding, _ = item
            if padding:
                continue
            request.num_computed = done = start + tokens
            if start < request.most_computed:
                again = min(request.most_computed, done) - start
                self.recomputed_tokens += again
                useful -= again
            useful += tokens
            if done > request.most_computed:
                request.most_computed = done
            if (tokens > 1 or not done % size) and done // size > start // size:
                filled.append(item)
        self.useful_tokens += useful
        return filled

    def publish(self, filled: Iterable[PlanItem]) -> None:
        """Seal the pages that accepted items filled, and make them known to later prompts.

        What is known is believed: only items whose output has been looked at belong here.
        """
        size, index = self.pool.page_tokens, self.pool.index
        for request, start, tokens, *_ in filled:
            first, last = start // size, (start + tokens) // size
            self.pool.seal(request.pages[first:last])
            if index is not None:
                for i in range(first, last):
                    known = request.token_ids(i * size, (i + 1) * size)
                    request.node = index.publish(request.pages[i], request.node, known)

    def distrust(self, request: Request) -> None:
        """Its output was not finite: no later prompt may be given a page that it has read."""
        index = self.pool.index
        if index is not None:
            for page in request.pages:
                if page in index:
                    index.forget(page)

    # --- proof ----------------------------------------------------------------------

    def check_integrity(self) -> None:
        """Pages, slabs and sets agree; AssertionError says what does not."""
        holders = self.holders()
        self.pool.check_integrity(request.pages for request in holders)
        for request in self.waiting:
            assert request.id not in self.running, f"{request.id} waits and runs"
            assert not request.pages and request.slab < 0, f"{request.id} waits and holds pages"
        slabs = [r.slab for r in holders if r.slab >= 0]
        assert len(slabs) == len(set(slabs)), "two requests share a slab"
        assert len(slabs) + self.pool.free_slabs == self.pool.slabs, "slabs are lost"
        for request in holders:
            assert request.num_computed <= len(request.pages) * self.pool.page_tokens

    def requests(self) -> Iterator[Request]:
        """Running ones first."""
        yield from self.running.values()
        yield from self.waiting
