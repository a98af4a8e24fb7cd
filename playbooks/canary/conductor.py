"""Runs a canary: moves the traffic stage by stage, looks, decides, and takes it back.

Everything happens on one event loop, whose clock is the only one: a test runs it on a virtual
one. What a look decides is playbooks/canary/rules.py's affair; here is when, and what follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from engine.errors import EngineError
from playbooks.canary.events import Beat, Decided, Listener, Phase, StageBegan
from playbooks.canary.evidence import CanaryEvidence, GaugeSeries, Sample
from playbooks.canary.fair_scheduler import FairScheduler
from playbooks.canary.plan import CanaryPlan
from playbooks.canary.probes import CrosstalkProbe, check_quality
from playbooks.canary.router import BASELINE, CANDIDATE, SIDES, Router
from playbooks.canary.rules import CanaryAction, RuleVerdict, Ruling, decide, judge
from playbooks.canary.sides import Side
from playbooks.canary.split import SplitTarget
from playbooks.canary.stage import Stage, title, unfinished
from playbooks.load.client import LoadRun
from playbooks.load.record import RequestRecord, now_ns
from playbooks.load.summary import generator_limit, latency_block
from playbooks.load.targets import NoMore
from playbooks.load.workload import LoadSpec

BEATS_A_STAGE = 60
"""Readings of memory in a stage's least time: enough for a slope."""
SETTLE_SHARE = 0.1
"""Of a stage's least time: requests due in it are not counted, while the load moves."""
STOP_POLL_S = 0.5
"""How often whoever runs it is asked whether to go on."""
POLL_S = 0.01
"""Between two looks at whether the candidate is idle."""
DISTRUSTED = ("faults", "crosstalk", "quality")
"""Rolled back for one of these, the candidate's open requests are taken back at once."""


class Stopped(Exception):
    """The traffic has ended before the canary did."""


class Conductor:
    """One canary. The sides are entered, and stepped by somebody, before `run`."""

    def __init__(
        self,
        plan: CanaryPlan,
        sides: dict[str, Side],
        load: LoadSpec,
        turns: FairScheduler | None = None,
        listener: Listener = lambda event: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.plan, self.sides, self.load = plan, sides, load
        self._turns, self._tell, self._stop = turns, listener, stop
        self.on_decision: Callable[[dict[str, Any]], None] = lambda decision: None
        self.router = Router(f"canary-{plan.seed or 0}")
        self.split = SplitTarget(sides, self.router, plan.users, plan.seed or 0)
        self._client = LoadRun(self.split, load, on_record=self._take)
        self._crosstalk = CrosstalkProbe(sides)
        self._alarm = asyncio.Event()
        self._traffic: asyncio.Task[Any] | None = None
        self.evidence = CanaryEvidence()
        """What outlives a stage: faults, probes, quality."""
        self.baseline_faults = 0
        self.stages: list[Stage] = []
        self.reference: Stage | None = None
        self.decisions: list[dict[str, Any]] = []
        self.rollback: dict[str, Any] | None = None
        self.interrupted = False
        self.ended_by: str | None = None
        """Why it is over, where no rule decided it."""

    async def run(self) -> CanaryAction:
        """advance: the candidate has everybody. Otherwise the baseline has."""
        self._start = now_ns()
        try:
            action = await self._before_traffic()
        except NoMore as error:
            self.ended_by = str(error)
            return CanaryAction.INCONCLUSIVE
        if action is CanaryAction.ROLL_BACK:
            return action
        self._traffic = asyncio.create_task(self._client.run())
        try:
            return await self._all_stages()
        except Stopped as stopped:
            self.ended_by = str(stopped)
            await self._give_back(CanaryAction.INCONCLUSIVE, [])
            return CanaryAction.INCONCLUSIVE
        finally:
            await self._end_traffic()

    @property
    def generator_limit(self) -> str | None:
        """Why the generator of the traffic, not a side, was the limit; None when it was not."""
        if not self.stages:
            return None
        answered = [s.ttft_ms for stage in self.stages for s in stage.own[BASELINE]]
        lag = latency_block(self._client.result.loop_lag_ms)
        return generator_limit(latency_block(answered), latency_block([]), lag)

    # --- before and after ---------------------------------------------------------------

    async def _before_traffic(self) -> CanaryAction:
        """What can be known without exposing a user."""
        if "quality" not in self.plan.waive:
            self._tell(Phase("quality", "golden prompts on both sides"))
            self.evidence.quality = await check_quality(self.sides, self._turns)
        if "crosstalk" not in self.plan.waive:
            self._tell(Phase("crosstalk", "marked prompts on each side alone"))
            await self._crosstalk.alone()
        found = [r for r in judge(self.evidence, self.plan) if r.call is RuleVerdict.ROLL_BACK]
        if not found:
            return CanaryAction.ADVANCE
        stage = self._new_stage(1, self.plan.shares[0])
        stage.rulings, stage.action = found, CanaryAction.ROLL_BACK
        stage.ended_s = stage.began_s
        self._decide(stage, CanaryAction.ROLL_BACK, found)
        self.rollback = await self._measure_return(now_ns(), found)
        return CanaryAction.ROLL_BACK

    async def _end_traffic(self) -> None:
        assert self._traffic is not None
        if not self._traffic.done():
            self._client.interrupt()
        with suppress(EngineError):
            await self._traffic

    # --- stages -------------------------------------------------------------------------

    async def _all_stages(self) -> CanaryAction:
        plan = self.plan
        if plan.whole:
            self._tell(Phase("reference", "all traffic on the baseline, to hold 100 % against"))
            self.reference = self._new_stage(0, 0.0)
            await self._stage(self.reference)
            if self.reference.action is not CanaryAction.ADVANCE:
                self.ended_by = "the baseline alone has answered too few requests"
                self._decide(self.reference, CanaryAction.INCONCLUSIVE, [])
                return CanaryAction.INCONCLUSIVE
        for number, share in enumerate(plan.shares, 1):
            stage = self._new_stage(number, share)
            self._tell(StageBegan(number, share, len(plan.shares)))
            self._decide_entry(stage)
            self.router.share = share
            await self._stage(stage)
            if stage.action is not CanaryAction.ADVANCE:
                await self._give_back(stage.action, stage.rulings)
                return stage.action
        self._decide(self.stages[-1], CanaryAction.ADVANCE, self.stages[-1].rulings)
        return CanaryAction.ADVANCE

    def _new_stage(self, number: int, share: float) -> Stage:
        settle = int(self.plan.scaled(self.plan.least_s) * SETTLE_SHARE * 1e9)
        evidence = CanaryEvidence(
            faults=self.evidence.faults, probes=self.evidence.probes, quality=self.evidence.quality
        )
        stage = Stage(number, share, self._elapsed(), now_ns() + settle, evidence)
        self.stages.append(stage)
        return stage

    async def _stage(self, stage: Stage) -> None:
        """Until it is decided. The last look's action stays in `stage.action`."""
        plan, began = self.plan, now_ns()
        beat = plan.scaled(plan.least_s) / BEATS_A_STAGE
        next_look = plan.look_s
        try:
            while stage.action is CanaryAction.HOLD:
                await self._pause(beat)
                elapsed = (now_ns() - began) / 1e9
                await self._read_gauges(stage)
                if stage.probe is None:
                    self._probe(stage)
                self._tell(self._beat(stage, elapsed))
                if elapsed >= next_look or self._alarm.is_set():
                    next_look = elapsed + plan.look_s
                    self._look(stage, elapsed)
        finally:
            stage.ended_s = self._elapsed()
            if stage.probe is not None:
                stage.probe.cancel()

    async def _pause(self, seconds: float) -> None:
        """Raises Stopped when there is no traffic any more. An alarm ends it early."""
        assert self._traffic is not None
        until = now_ns() + int(seconds * 1e9)
        alarm = asyncio.create_task(self._alarm.wait())
        while not alarm.done() and not self._traffic.done() and now_ns() < until:
            slice_s = min((until - now_ns()) / 1e9, STOP_POLL_S)
            waiting = (self._traffic, alarm)
            await asyncio.wait(waiting, timeout=slice_s, return_when=asyncio.FIRST_COMPLETED)
            if self._stop():
                self._client.interrupt()
                await asyncio.wait({self._traffic})
        alarm.cancel()
        if self._traffic.done():
            error = self._traffic.exception()
            if error is not None and not isinstance(error, EngineError):
                raise error
            self.interrupted = error is None and self._traffic.result().interrupted
            left = None if error is not None else self._traffic.result().stopped_by
            why = f"the traffic ended: {error or left or 'there is no more of it'}"
            raise Stopped("interrupted" if self.interrupted else why)

    def _look(self, stage: Stage, elapsed: float) -> None:
        plan = self.plan
        self._alarm.clear()
        stage.looks += 1
        ripe = elapsed >= plan.scaled(plan.least_s)
        expired = elapsed >= plan.scaled(plan.hold_s)
        if stage.share == 0:
            answered = sum(s.error is None for s in stage.own[BASELINE])
            ripe &= answered >= plan.min_samples
            stage.action = decide([], ripe, expired)
            return
        self._gather(stage)
        asking = stage.probe is not None and not stage.probe.done()
        stage.rulings = [unfinished(r) if asking else r for r in judge(stage.evidence, plan)]
        doubt = any(r.rule == "crosstalk" and r.call is RuleVerdict.HOLD for r in stage.rulings)
        if doubt and not asking:
            self._probe(stage)
        stage.action = decide(stage.rulings, ripe, expired)
        if self.baseline_faults >= plan.faults and stage.action is not CanaryAction.ROLL_BACK:
            self.ended_by = f"the baseline itself has had {self.baseline_faults} engine faults"
            stage.action = CanaryAction.INCONCLUSIVE
        if stage.action is CanaryAction.HOLD:
            self._decide(stage, CanaryAction.HOLD, stage.rulings)

    def _probe(self, stage: Stage) -> None:
        """Marked prompts once a stage, and again after a look that they left in doubt. In the
        background: a candidate that hangs must not hold up the looking."""
        if "crosstalk" not in self.plan.waive and stage.share > 0:
            stage.probe = asyncio.create_task(self._ask_marked())

    async def _ask_marked(self) -> None:
        """A side that nothing more may be asked of leaves the rule in doubt."""
        with suppress(EngineError):
            await self._crosstalk.amid_traffic(self.evidence.probes)

    # --- evidence -----------------------------------------------------------------------

    def _take(self, record: RequestRecord, start: int) -> None:
        """A request has ended."""
        self._client.result.records.clear()  # hours of traffic are not kept
        side = self.split.settle(record.index)
        sample = Sample.of(record, self.sides[side].held_ns) if side in SIDES else None
        if sample is None:
            return
        if sample.is_fault:
            self._count_fault(side)
        stage = self.stages[-1] if self.stages else None
        if stage is not None and stage.ended_s is None and record.scheduled >= stage.counts_from:
            stage.own[side].append(sample)

    def _count_fault(self, side: str) -> None:
        if side == BASELINE:
            self.baseline_faults += 1
            return
        self.evidence.faults += 1
        if self.evidence.faults >= self.plan.faults:
            self._alarm.set()

    def _gather(self, stage: Stage) -> None:
        """What this look may use: the stage's own, open requests that are late already, and the
        baseline's time alone where it serves nobody now."""
        evidence = stage.evidence
        evidence.faults = self.evidence.faults
        now = now_ns()
        for name in SIDES:
            evidence.samples[name] = stage.own[name] + self._late(stage, name, now)
        if stage.share == 1.0 and self.reference is not None:
            evidence.samples[BASELINE] = self.reference.own[BASELINE]

    def _late(self, stage: Stage, side: str, now: int) -> list[Sample]:
        """Open requests older than nearly all that were answered: they are of the tail, however
        long they still take. Without them a side that hangs would look idle."""
        done = sorted(s.e2e_ms for s in stage.own[side] if s.e2e_ms is not None)
        if not done:
            done = sorted(s.e2e_ms for s in stage.own[BASELINE] if s.e2e_ms is not None)
        usual = done[int(len(done) * self.plan.tail)] if done else None
        if usual is None:
            return []
        mine = (
            Sample.waiting(record, now, self.sides[side].held_ns)
            for number, record in self.split.open.items()
            if self.split.side_of(number) == side and record.scheduled >= stage.counts_from
        )
        return [sample for sample in mine if (sample.e2e_ms or 0.0) > usual]

    async def _read_gauges(self, stage: Stage) -> None:
        if stage.share == 0:
            return
        for gauge in await self.sides[CANDIDATE].gauges():
            kept = self.evidence if gauge.exact else stage.evidence
            series = kept.memory.setdefault(
                gauge.name, GaugeSeries(gauge.name, gauge.limit, gauge.unit, gauge.exact)
            )
            series.add(self._elapsed(), gauge)
            stage.evidence.memory[gauge.name] = series

    def _elapsed(self) -> float:
        return (now_ns() - self._start) / 1e9

    def _beat(self, stage: Stage, elapsed: float) -> Beat:
        failed = sum(s.error is not None for s in stage.own[CANDIDATE])
        return Beat(
            stage.share,
            elapsed,
            self.plan.scaled(self.plan.least_s),
            len(stage.own[CANDIDATE]),
            len(stage.own[BASELINE]),
            self.plan.min_samples,
            failed,
            len(self.split.open),
        )

    # --- decisions ----------------------------------------------------------------------

    def _decide_entry(self, stage: Stage) -> None:
        before = self.stages[self.stages.index(stage) - 1] if len(self.stages) > 1 else stage
        self._decide(stage, CanaryAction.ADVANCE, before.rulings)

    def _decide(self, stage: Stage, action: CanaryAction, rulings: list[Ruling]) -> None:
        """Note it, and log it: a hold that goes on for the same reason is one decision."""
        final = action is CanaryAction.ADVANCE and stage.action is CanaryAction.ADVANCE
        reasons = [r.why for r in rulings if r.call.value == action.value]
        if self.ended_by is not None:
            reasons.append(self.ended_by)
        if action is CanaryAction.INCONCLUSIVE:
            reasons += [r.why for r in rulings if r.call is RuleVerdict.HOLD]
        first = action is CanaryAction.ADVANCE and stage.number == 1 and not final
        otherwise = "the first users" if first else "every rule passes"
        decision = {
            "at_s": self._elapsed(),
            "stage": stage.number,
            "share": stage.share,
            "look": stage.looks,
            "action": "promote" if final else action.value,
            "title": title(stage, action, final),
            "why": "; ".join(reasons) or otherwise,
            "rules": [r.rule for r in rulings if r.call.value == action.value],
        }
        last = self.decisions[-1] if self.decisions else None
        kept = ("stage", "action", "rules")
        if action is CanaryAction.HOLD and last and all(last[k] == decision[k] for k in kept):
            return
        self.decisions.append(decision)
        self.on_decision(decision)
        self._tell(Decided(decision))

    async def _give_back(self, action: CanaryAction, rulings: list[Ruling]) -> None:
        """All traffic to the baseline, now; and watch the candidate until nobody is on it."""
        at = now_ns()
        self.router.share = 0.0
        stage = self.stages[-1]
        stage.action, stage.ended_s = action, stage.ended_s or self._elapsed()
        self._tell(Phase("rollback", "all traffic to the baseline"))
        self._decide(stage, action, rulings)
        self.rollback = await self._measure_return(at, rulings)

    async def _measure_return(self, at: int, rulings: list[Ruling]) -> dict[str, Any]:
        """How the candidate's open requests ended, and when it was idle."""
        plan, split = self.plan, self.split
        blamed = {r.rule for r in rulings if r.call is RuleVerdict.ROLL_BACK}
        routed, opened = split.routed[CANDIDATE], split.on_candidate()
        taken_back = split.recall() if blamed & set(DISTRUSTED) else 0
        patience = at + plan.scaled(plan.drain_s) * 1e9
        while split.on_candidate() and self._has_traffic():
            if now_ns() > patience:
                taken_back += split.recall()
            await asyncio.sleep(POLL_S)
        left = await self.sides[CANDIDATE].left()
        while left and now_ns() <= patience:
            await asyncio.sleep(POLL_S)
            left = await self.sides[CANDIDATE].left()
        idle = now_ns()
        return {
            "in_flight": opened,
            "finished": opened - taken_back,
            "retried": taken_back,
            "routed_after": split.routed[CANDIDATE] - routed,
            "last_request_ms": max(split.last_sent_ns - at, 0) / 1e6,
            "idle_ms": (idle - at) / 1e6,
            "left": left,
        }

    def _has_traffic(self) -> bool:
        return self._traffic is not None and not self._traffic.done()
