"""A small model that drafts for a large one, through the same pages, slabs and batches.

Its K and V lie in a cache of its own whose pages have the numbers of the large one's: a request's
block table serves both. What a request knows is computed here when a draft is looked for, a token
budget at a time, and again after preemption; prefix hits save nothing here. Draft tokens
follow one after another, each sampled with the random number that the large model's sampler will
use for its place: where the two models agree about a token's odds they mostly draw the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.execution.runner import ModelRunner
from engine.execution.sampler import Sampler
from engine.observing.clock import Clock
from engine.request import Request
from engine.scheduling.odds import FORGET_ALL, Odds
from engine.scheduling.plan import Draft, Plan, PlanItem
from engine.scheduling.stepcost import StepTimes

FORGET = 0.95
"""Weight that outcomes keep with each new one."""
PROBE = 64
"""Steps without drafts after which one token is drafted: else nobody knew when drafts pay again."""


@dataclass(slots=True)
class _State:
    """Of one request."""

    life: int
    computed: int = 0
    """Tokens whose K and V are in the draft model's cache."""
    pending: list[int] = field(default_factory=list)
    """What was drafted last, until it is known what came, and ..."""
    place: int = 0
    """... how many output tokens there were."""
    odds: Odds = field(default_factory=Odds)


class DraftModel:
    """`budget`: most tokens in one pass."""

    def __init__(self, runner: ModelRunner, sampler: Sampler, clock: Clock, budget: int) -> None:
        self._runner, self._sampler, self._clock = runner, sampler, clock
        self._budget = budget
        self._states: dict[Request, _State] = {}
        self._times = StepTimes()
        """Of a pass of this model."""
        self._all = Odds(3.0, 5.0)
        self._idle = 0

    def depth(self, requests: int, most: int, step: float, row: float) -> int:
        """What gives the most tokens a second: a token more is one more pass, and one more row
        of the large model, for each request."""
        chance, one = self._all.share, self._times.of(requests)
        best, rate = 0, requests / step
        expected, term = 1.0, 1.0
        for depth in range(1, most + 1):
            term *= chance
            expected += term
            if (now := requests * expected / (step + depth * (one + requests * row))) > rate:
                best, rate = depth, now
        self._idle = 0 if best else self._idle + 1
        if self._idle >= PROBE:
            self._idle, best = 0, 1
        return best

    def draft(self, asked: Sequence[tuple[Request, int]]) -> list[Draft]:
        """For each request at most so many tokens, and how likely each comes."""
        for request, _ in asked:
            self._learn(request)
        drafted: dict[Request, list[int]] = {}
        ready = self._catch_up(asked, drafted)
        while ready := [(r, most) for r, most in ready if len(drafted[r]) < most]:
            self._next_tokens([r for r, _ in ready], drafted)
        found = []
        for request, _ in asked:
            tokens, state = drafted.get(request, []), self._states[request]
            state.pending, state.place = tokens, len(request.output_ids)
            found.append(Draft(tokens, [state.odds.among(self._all)] * len(tokens)))
        return found

    def forget(self, request: Request) -> None:
        self._states.pop(request, None)

    def __len__(self) -> int:
        return len(self._states)

    def _learn(self, request: Request) -> None:
        """Hold the last draft against what came; a new life of the request begins anew."""
        state = self._states.get(request)
        if state is None or state.life != request.life:
            state = self._states[request] = _State(request.life)
        came = request.output_ids[state.place :]
        for guess, token in zip(state.pending, came, strict=False):
            right = guess == token
            state.odds.note(right, FORGET)
            self._all.note(right, FORGET_ALL)
            if not right:
                break
        state.pending = []

    def _catch_up(
        self, asked: Sequence[tuple[Request, int]], drafted: dict[Request, list[int]]
    ) -> list[tuple[Request, int]]:
        """Compute what is known and not in the cache; those with nothing left have their first
        token afterwards."""
        items, ready, left = [], [], self._budget
        for request, most in asked:
            state = self._states[request]
            start = min(state.computed, request.num_tokens - 1)
            count = min(request.num_tokens - start, left)
            if count > 0:
                whole = start + count == request.num_tokens
                items.append(PlanItem(request, start, count, int(whole)))
                state.computed = start + count
                left -= count
                if whole:
                    ready.append((request, most))
        self._pass(Plan(items), drafted)
        return ready

    def _next_tokens(self, requests: Sequence[Request], drafted: dict[Request, list[int]]) -> None:
        """The tokens drafted so far are rows behind the newest known one, all computed again but
        the last: there are few, and they lie in one page."""
        items = [
            PlanItem(r, r.num_tokens - 1, 1 + len(drafted[r]), 1, draft=tuple(drafted[r]))
            for r in requests
        ]
        self._pass(Plan(items), drafted)

    def _pass(self, plan: Plan, drafted: dict[Request, list[int]]) -> None:
        if not plan.items:
            return
        start = self._clock.ns()
        batch = self._runner.build(plan, last_only=True)
        logits = self._runner.run(batch)
        rows = batch.sampling
        ahead = [tuple(drafted.get(request, ())) for request in rows]
        tokens = self._sampler.sample(logits[: len(rows)], rows, ahead)
        for request, token in zip(rows, tokens, strict=True):
            request.logprobs.clear()  # the draft model's own are nobody's business
            drafted.setdefault(request, []).append(0 if token is None else token)
        self._times.note(plan.tokens, self._clock.ns() - start)
