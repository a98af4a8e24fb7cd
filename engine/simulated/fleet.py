"""Fleet: replicas behind a router, in virtual time. No torch.

Its time is seconds of the period that is simulated. Parts of it can be skipped: what runs then
stands still, and what was to come in it is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from engine.request import FinishReason, Request, SamplingParams, Status
from engine.simulated.clock import VirtualClock
from engine.simulated.member import Member
from engine.simulated.replica import Replica
from engine.simulated.routers import Router

ORIGIN = 10**16
"""Nanoseconds of a replica's clock at second 0: a stamp is never 0 or less, however late."""
LOST = "lost"
"""Ended with its replica."""
UNSERVED = "unserved"
"""No replica was there to take it."""
UNFINISHED = "unfinished"
"""Still open when the period had ended, and some time on top."""
LOOK_S = 5.0
MakeReplica = Callable[[int, VirtualClock], Replica]
"""From a replica's number and its clock."""


class Outcome(NamedTuple):
    """What became of one request. Latencies begin at its arrival; None: it did not come so far."""

    at_s: float
    """When it arrived."""
    reason: str
    """A FinishReason's value, or one of those above."""
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    queue_ms: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0


class Load(NamedTuple):
    """What a fleet has at a moment; draining replicas' included."""

    taking: int
    """Replicas that take requests."""
    starting: int
    running: int
    waiting: int
    kv: float | None
    """Of the pages of those that take requests, the share that requests hold."""


class Fleet:
    """The same requests, replicas and moves give the same outcomes.

    `outcomes` are in the order in which requests ended; whoever reads them may clear them.
    """

    def __init__(
        self,
        make: MakeReplica,
        router: Router,
        size: int,
        block_tokens: int = 512,
        arrival_ns: int = 0,
        unix: float = 0.0,
    ) -> None:
        """`block_tokens`: of the parts that a prefix is told in; `arrival_ns`: from a request's
        arrival until it is in the engine's queue; `unix`: second 0, for what replicas publish."""
        self._unix = unix
        self._make, self._router = make, router
        self._block_tokens, self._arrival_ns = block_tokens, arrival_ns
        self.members: list[Member] = []
        """Those that take requests, or will."""
        self._leaving: list[Member] = []
        self._made = 0
        self._skipped = 0.0
        self._drops = False
        self.now_s = 0.0
        self.outcomes: list[Outcome] = []
        self.grow(size)

    # --- requests -----------------------------------------------------------------------

    def send(
        self, at_s: float, prompt: list[int], output: int, prefix: tuple[int, ...] | None = None
    ) -> None:
        """A request that arrives at `at_s`, after all that were sent before; it may lie in time
        that was skipped. Its answer has `output` tokens."""
        self.now_s = max(self.now_s, at_s)
        now = self._ns(self.now_s)
        ready = [m for m in self.members if m.takes_from <= now]
        if not ready:
            self.outcomes.append(Outcome(at_s, UNSERVED, prompt_tokens=len(prompt)))
            return
        member = self._router.choose(ready, now, prefix or ())
        request = member.replica.submit(
            prompt, _ends_after(output), at=self._ns(at_s), tokenize_ns=self._arrival_ns
        )
        member.take()
        request.stream.listen(None, partial(self._ended, member, request, at_s))

    def _ended(self, member: Member, request: Request, at_s: float) -> None:
        stamps, reason = request.stamps, request.finish_reason
        member.gave_back(stamps.finished)
        if self._drops:
            return
        whole = reason in (FinishReason.LENGTH, FinishReason.STOP)
        self.outcomes.append(
            Outcome(
                at_s,
                member.fate or str(reason),
                stamps.span_ms("arrival", "first_token"),
                stamps.tpot_ms if whole else None,
                stamps.span_ms("arrival", "last_token") if whole else None,
                stamps.span_ms("arrival", "first_scheduled"),
                len(request.prompt_ids),
                len(request.output_ids),
                request.preemptions,
            )
        )

    def drop_waiting(self, share: float = 1.0) -> int:
        """Forget that share of those that have not begun, evenly; how many. They leave no
        outcome."""
        return self._drop(share, lambda request: request.status in (Status.NEW, Status.WAITING))

    def drop_running(self, share: float) -> int:
        """The same of those that have."""
        return self._drop(share, lambda request: request.status not in (Status.NEW, Status.WAITING))

    def _drop(self, share: float, one_of_them: Callable[[Request], bool]) -> int:
        self._drops, dropped, due = True, 0, 0.0
        for member in self.members:
            loop = member.replica.loop
            for request in filter(one_of_them, list(loop.open.values())):
                due += share
                if due >= 1:
                    due -= 1
                    loop.finish(request, FinishReason.CANCELLED)
                    dropped += 1
        self._drops = False
        return dropped

    # --- time ---------------------------------------------------------------------------

    def run_until(self, at_s: float) -> None:
        """Live on; a step under way is finished. Draining replicas that have ended are gone."""
        self.now_s = max(self.now_s, at_s)
        now = self._ns(self.now_s)
        for member in (*self.members, *self._leaving):
            member.replica.run_until(now)
        self._leaving = [m for m in self._leaving if m.replica.loop.open]

    def finish(self, limit_s: float) -> None:
        """Until all have ended, or for so many seconds: what is open then is UNFINISHED."""
        end = self.now_s + limit_s
        while self.now_s < end and any(m.replica.loop.open for m in self._all):
            self.run_until(min(self.now_s + LOOK_S, end))
        for member in self._all:
            member.end(UNFINISHED)

    def skip(self, seconds: float) -> None:
        """So much time passes outside: nothing is computed in it, replicas go on starting."""
        self._skipped += seconds
        self.now_s += seconds
        for member in self.members:
            member.takes_from -= int(seconds * 1e9)

    def load(self) -> Load:
        """At this moment. Raises nothing: a fleet of none has none of anything."""
        self.run_until(self.now_s)
        now, everybody = self._ns(self.now_s), self._all
        schedulers = [m.replica.loop.scheduler for m in everybody]
        taking = [m for m in self.members if m.takes_from <= now]
        pools = [m.replica.loop.scheduler.pool for m in taking]
        return Load(
            len(taking),
            len(self.members) - len(taking),
            sum(len(s.running) for s in schedulers),
            sum(len(s.waiting) for s in schedulers),
            sum(p.used for p in pools) / sum(p.total for p in pools) if pools else None,
        )

    # --- replicas -----------------------------------------------------------------------

    def grow(self, count: int, start_s: float = 0.0) -> None:
        """More replicas, with empty caches, that take requests after `start_s`."""
        now = self._ns(self.now_s)
        for _ in range(count):
            replica = self._make(
                self._made, VirtualClock(now, self._unix + self.now_s - self._skipped)
            )
            ready = now + int(start_s * 1e9)
            self.members.append(Member(self._made, replica, ready, self._block_tokens))
            self._made += 1

    def shrink(self, count: int) -> None:
        """The youngest take no more: those that start are gone, the others finish what they
        have."""
        for member in sorted(self.members, key=lambda m: (-m.takes_from, -m.number))[:count]:
            self.members.remove(member)
            self._leaving.append(member)

    def lose(self, count: int) -> int:
        """The oldest are gone at once, with all that they had; how many requests that was."""
        self.run_until(self.now_s)
        ended = len(self.outcomes)
        for member in self.members[:count]:
            self.members.remove(member)
            member.end(LOST)
        return len(self.outcomes) - ended

    @property
    def _all(self) -> Sequence[Member]:
        return (*self.members, *self._leaving)

    def _ns(self, at_s: float) -> int:
        return ORIGIN + round((at_s - self._skipped) * 1e9)


@lru_cache(maxsize=4096)
def _ends_after(tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max(tokens, 1), ignore_eos=True)
