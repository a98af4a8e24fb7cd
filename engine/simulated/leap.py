"""Leaps: runs of steps in which the same requests decode, until somebody comes or is let in.

Between two such events a batch does the same thing again and again. A leap makes those steps
without planning each: positions, tokens and times of a request are written once, pages are taken
and sealed in the step and order in which Loop.step would have, and telemetry hears of every step.
What is left afterwards is what the loop would have left, to the byte; where a leap cannot be sure
of that, it ends, and the loop makes the next step.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from engine.loop import Loop
from engine.observing.telemetry import StepRecord
from engine.request import FinishReason, Request
from engine.scheduling.continuous import Continuous
from engine.scheduling.plan import PlanItem
from engine.scheduling.scheduler import PREEMPTIONS_MAX
from engine.simulated.clock import VirtualClock
from engine.simulated.cost import CostCompute
from engine.simulated.work import StepWork


class Leaper:
    def __init__(self, loop: Loop, compute: CostCompute, clock: VirtualClock) -> None:
        self._loop, self._compute, self._clock = loop, compute, clock

    def leap(self, until: float) -> bool:
        """As many steps as are sure, none of which begins at `until` (ns) or later. False: none."""
        now = self._clock.ns()
        last_step = now - self._loop.round_began
        if until - now <= last_step:  # one step is no run of them
            return False
        self._loop.take_in()
        rows = list(self._loop.scheduler.running.values())
        if not self._only_decode(rows):
            return False
        run = _Run(self._loop, self._compute, self._clock, rows)
        while self._clock.ns() < until and run.may_go_on():
            run.step()
        run.settle()
        return run.steps > 0

    def _only_decode(self, rows: Sequence[Request]) -> bool:
        """The next step's plan is one token for each of the rows, and nobody looks at it."""
        loop, scheduler = self._loop, self._loop.scheduler
        if not rows or loop.observer.wanted or loop.on_step is not None or self._compute.words:
            return False
        if type(scheduler.policy) is not Continuous or loop.speculation is not None:
            return False
        for row in rows:
            plain = not (row.stop_ids or row.params.stop or row.logprobs)
            if row.num_tokens - row.num_computed != 1 or not row.output_ids or not plain:
                return False
        return True


class _Run:
    """One leap. `rows` in order of admission; `steps` made so far."""

    def __init__(
        self, loop: Loop, compute: CostCompute, clock: VirtualClock, rows: list[Request]
    ) -> None:
        self._loop, self._compute, self._clock, self._rows = loop, compute, clock, rows
        self._scheduler, self._pool = loop.scheduler, loop.scheduler.pool
        self._size = self._pool.page_tokens
        self.steps = 0
        self._times = array("q")
        """When each step's tokens were there."""
        self._by_place: list[list[Request]] = [[] for _ in range(self._size)]
        """Rows by the place in its page that their first token of the leap has."""
        self._ends: dict[int, list[Request]] = {}
        """Rows by the step after which they have their last token."""
        for row in rows:
            self._by_place[row.num_computed % self._size].append(row)
            self._ends.setdefault(row.ends_at - len(row.output_ids), []).append(row)
        self._growing: list[Request] = []
        """Rows that need a page for the next step."""
        self._first = {row.number: row.num_computed for row in rows}
        self._known = {row.number: len(row.output_ids) for row in rows}
        self._held = sum(self._first.values())
        self._gaps = [row.stamps.last_token for row in rows]
        self._promised = sum(
            self._scheduler.claim(row) for row in rows if row.preemptions >= PREEMPTIONS_MAX
        )
        self._waits = bool(self._scheduler.waiting) and not self._scheduler.paused

    def may_go_on(self) -> bool:
        """Nothing but decoding happens in the next step."""
        scheduler, pool = self._scheduler, self._pool
        if not self._rows:
            return False
        if self._waits and len(self._rows) < scheduler.cap and pool.free_slabs:
            return False
        expires = scheduler.next_deadline
        if expires is not None and expires <= self._clock.ns():
            return False
        begins = self._by_place[-self.steps % self._size]
        self._growing = [row for row in begins if len(row.pages) <= self._place(row)]
        return len(self._growing) <= pool.available - self._promised

    def _place(self, row: Request) -> int:
        """Of its pages, the one that its next token comes into."""
        return (self._first[row.number] + self.steps) // self._size

    def step(self) -> None:
        loop, rows = self._loop, len(self._rows)
        loop.round_began = start = self._pool.now = self._clock.ns()
        for row in self._growing:
            grown = self._pool.allocate(1)
            assert grown is not None, "there was room"
            row.pages += grown
        filled = self._by_place[(-self.steps - 1) % self._size]
        loop.bound_by = bound_by = "cap" if self._waits else "queue"
        loop.observer.watch(rows, start)
        self._held += rows
        work = StepWork(rows, rows, rows, self._held, self._held, 0, len(filled))
        build, forward, sample = self._compute.spend(work)
        now = self._clock.ns()
        self._scheduler.useful_tokens += rows
        self._publish(filled)
        self._times.append(now)
        self.steps += 1
        gaps = [now - last for last in self._gaps]
        self._gaps = [now] * rows
        if self.steps in self._ends:
            self._finish(self._ends[self.steps])
        loop.telemetry.token_gaps(now, gaps)
        loop.note_step(
            StepRecord(
                end=now, build=build, forward=forward, sample=sample, decode_tokens=rows,
                sampled=rows, running=rows, waiting=len(self._scheduler.waiting),
                bound_by=bound_by,
            ),
            self._held,
        )  # fmt: skip

    def _publish(self, filled: list[Request]) -> None:
        """Seal the pages that this step fills, and make them known."""
        items = []
        for row in filled:
            known = len(row.output_ids) - self._known[row.number]
            self._compute.next_tokens(row, self.steps - known)
            items.append(PlanItem(row, self._first[row.number] + self.steps, 1, True))
        if items:
            self._scheduler.publish(items)

    def _finish(self, rows: list[Request]) -> None:
        """They have their last token."""
        for row in rows:
            self._write(row)
            self._held -= row.num_computed
            self._by_place[self._first[row.number] % self._size].remove(row)
            self._rows.remove(row)
            self._loop.finish(row, FinishReason.LENGTH)
        self._gaps = self._gaps[: len(self._rows)]

    def settle(self) -> None:
        """Write down what the rows have got."""
        for row in self._rows:
            self._write(row)

    def _write(self, row: Request) -> None:
        begun = self._known[row.number]
        self._compute.next_tokens(row, self.steps - (len(row.output_ids) - begun))
        row.num_computed = done = self._first[row.number] + self.steps
        row.most_computed = max(row.most_computed, done)
        row.stamps.tokens.extend(self._times)
        row.stream.put("", row.output_ids[begun:])
