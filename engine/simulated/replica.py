"""Replica: one engine in virtual time. The real loop and scheduler; no threads, no torch."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence

from engine.config import EngineConfig
from engine.loop import Loop
from engine.request import Priority, Request, SamplingParams
from engine.scheduling.assemble import make_scheduler
from engine.scheduling.plan import ModelFacts
from engine.simulated.clock import VirtualClock
from engine.simulated.cost import CostCompute, StepCost, made_up
from engine.simulated.leap import Leaper
from engine.stream import Stream

NEVER = 1 << 62
COLLECT_NS = 2_000_000
"""Between looks while a static batch fills."""


class Replica:
    """`pages` and the fields of `config` that schedule decide what runs, `cost` how long.

    The same arrivals, settings and costs give the same steps, however `run_until` cuts the time.
    """

    def __init__(
        self,
        config: EngineConfig,
        facts: ModelFacts,
        cost: StepCost,
        *,
        pages: int,
        max_model_len: int,
        clock: VirtualClock | None = None,
        token: Callable[[Request], int] = made_up,
        eos_ids: frozenset[int] = frozenset(),
        words: Sequence[str] = (),
        leaps: bool = True,
    ) -> None:
        """`leaps`: steps between two events are made without a plan each, the same ones."""
        self.clock = clock or VirtualClock()
        scheduler = make_scheduler(config, pages, config.max_batch, max_model_len)
        page_tokens = scheduler.pool.page_tokens
        compute = CostCompute(facts, cost, self.clock, page_tokens, token, eos_ids, words)
        self.loop = Loop(scheduler, compute, self.clock, config)
        self._leaper = Leaper(self.loop, compute, self.clock) if leaps else None
        self._least_step = compute.least_step
        self._coming: list[tuple[int, int, Request]] = []
        """(when, number, who), a heap."""
        self._numbers = itertools.count(1)

    def submit(
        self,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        at: int | None = None,
        tokenize_ns: int = 0,
        source: str = "load",
        client: str = "",
        priority: Priority = Priority.NORMAL,
        timeout_s: float | None = None,
    ) -> Request:
        """A prompt that arrives at `at` (ns), now by default, and comes in once tokenized."""
        number, now = next(self._numbers), self.clock.ns()
        stream = Stream(f"r-{number}")
        request = Request(stream.request_id, params, stream, prompt_ids, number=number)
        request.source, request.client, request.priority = source, client, priority
        stream.stamps = stamps = request.stamps
        arrival = now if at is None else at
        stamps.arrival = stamps.received = stamps.tokenize_start = arrival
        stamps.tokenize_end = arrival + tokenize_ns
        if timeout_s is not None:
            request.deadline = arrival + int(timeout_s * 1e9)
        self.loop.open[request.id] = request
        if at is None:
            self.loop.admit(request)
        else:
            heapq.heappush(self._coming, (stamps.tokenize_end, number, request))
        return request

    def run_until(self, moment: int) -> None:
        """Live on to `moment` (ns). A step that began before it is finished."""
        while self.clock.ns() < moment:
            if not self._step(moment):
                self._wait(moment)

    def quiet_until(self) -> int:
        """No request ends before that moment (ns), whoever comes meanwhile: each of the steps up
        to it brings a request one token at most."""
        now, scheduler = self.clock.ns(), self.loop.scheduler
        running = scheduler.running.values()
        if scheduler.waiting or scheduler.pool.available <= len(running):
            return now
        steps = min((row.ends_at - len(row.output_ids) for row in running), default=0)
        if self.loop.speculation or any(row.stop_ids or row.params.stop for row in running):
            return now
        moments = [now + steps * self._least_step] if running else []
        if self._coming:
            moments.append(max(now, self._coming[0][0]))
        if scheduler.next_deadline is not None:
            moments.append(scheduler.next_deadline)
        return min(moments, default=NEVER)

    def run(self) -> None:
        """Until all that was submitted has ended, or nothing more can happen by itself."""
        while True:
            if self._step():
                continue
            if not self._coming and not self.loop.scheduler.has_work:
                return
            self._wait(None)

    def _step(self, moment: float = math.inf) -> bool:
        """One step, or a run of steps before `moment` in which nobody comes."""
        while self._coming and self._coming[0][0] <= self.clock.ns():
            self.loop.admit(heapq.heappop(self._coming)[2])
        comes = self._coming[0][0] if self._coming else math.inf
        leapt = self._leaper is not None and self._leaper.leap(min(moment, comes))
        return leapt or self.loop.step()

    def _wait(self, moment: int | None) -> None:
        """Nothing to compute: on to `moment`, or until somebody comes or a batch may start."""
        moments = [] if moment is None else [moment]
        if self._coming:
            moments.append(self._coming[0][0])
        if self.loop.scheduler.has_work:
            moments.append(self.clock.ns() + COLLECT_NS)
        self.clock.move_to(min(moments))
