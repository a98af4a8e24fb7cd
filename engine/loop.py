"""Loop: everything that belongs to the engine thread, and the step itself.

`step` reads as the architecture: take in → plan → build, run, sample → apply → record. Nothing
here may be touched from another thread, but for the latest Snapshot.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from engine.config import EngineConfig
from engine.errors import EngineError
from engine.execution.load import Parts
from engine.observing.observer import observe
from engine.observing.pageview import Owners
from engine.observing.telemetry import StepRecord, Telemetry
from engine.observing.watchdog import Watchdog
from engine.request import FinishReason, Request, Status
from engine.scheduling.cap import BatchController, Objective
from engine.scheduling.intake import Call, Cancel, Intake, Submit
from engine.scheduling.scheduler import Plan
from engine.scheduling.static import Static
from engine.snapshot import Snapshot
from engine.text.output import OutputText

log = logging.getLogger("evewatch.engine")

SNAPSHOT_INTERVAL_S = 0.25


class Loop:
    def __init__(
        self,
        config: EngineConfig,
        parts: Parts,
        intake: Intake,
        open_requests: dict[str, Request],
        clock: Callable[[], int],
    ) -> None:
        self.config = config
        self.loaded = parts.loaded
        self.backend, self.device = parts.backend, parts.device
        self.cache, self.runner, self.sampler = parts.cache, parts.runner, parts.sampler
        self.scheduler = parts.scheduler
        self.telemetry = Telemetry()
        self.watchdog = Watchdog(int(config.stall_s * 1e9))
        self.dynamic = config.dynamic_batch
        self.max_wait_ms = config.max_wait_ms
        self.draining = False
        self.texts: dict[str, OutputText] = {}
        self.open = open_requests
        """Every request between submit and its end, whoever has it at the moment."""
        self.snapshot = Snapshot()
        self.wanted = False
        """Somebody has taken the latest Snapshot: a newer one is worth building."""
        self.pages_until = 0.0
        """Until then (monotonic s) Snapshots say whose each page is."""
        self.page_owners = Owners()
        self.bytes_read = (0, 0.0)
        """What telemetry said at the last Snapshot."""
        self.bandwidth_peak: float | None = None
        """Bytes a second that reading memory reaches, once it has been measured."""
        self.bound_by: str | None = None
        self._controller = BatchController(
            Objective(
                config.min_batch, config.max_batch, config.tpot_objective_ms, config.max_wait_ms
            )
        )
        self._intake = intake
        self._clock = clock
        self.round_began = clock()
        """Monotonic ns; from any thread: a step that never ends has an old one."""
        self._snapshot_due = 0.0
        self.publish()

    # --- the step ---------------------------------------------------------------------

    def step(self) -> bool:
        """One round; False when there was nothing to compute."""
        self.round_began = start = self._clock()
        self._take_in()
        plan = self.scheduler.plan(self._clock())  # later than what was just taken in was queued
        self._settle(plan)
        if self.watchdog.look(self.scheduler, plan.tokens, start):
            log.error("watchdog: %s", self.watchdog.reason)
            self.telemetry.event("watchdog", self.watchdog.reason or "")
        if not plan.items:
            self._publish_if_wanted()  # while work waits for a batch, or is stuck
            return False
        record = StepRecord(end=0, plan=self._clock() - start)
        try:
            tokens = self._compute(plan, record)
            self._apply(plan, tokens, record)
        except Exception as error:
            self._fail(plan, error)
        self._record(plan, record)
        return True

    def _take_in(self) -> None:
        for command in self._intake.drain():
            match command:
                case Submit(request):
                    try:
                        self._admit(request)
                    except Exception as error:
                        self._break_off(request, error)
                case Cancel(request_id):
                    found = self.open.get(request_id)
                    if found is not None and found.status is not Status.NEW:
                        self.finish(found, FinishReason.CANCELLED)
                case Call():
                    command.run()

    def _compute(self, plan: Plan, record: StepRecord) -> list[tuple[Request, int | None]]:
        times = [self._clock()]
        batch = self.runner.build(plan)
        times.append(self._clock())
        logits = self.runner.run(batch)
        times.append(self._clock())
        tokens = self.sampler.sample(logits, batch.sampling)
        times.append(self._clock())
        record.build, record.forward, record.sample = (b - a for a, b in itertools.pairwise(times))
        return list(zip(batch.sampling, tokens, strict=True))

    def _apply(
        self, plan: Plan, tokens: list[tuple[Request, int | None]], record: StepRecord
    ) -> None:
        now = self._clock()
        record.count(plan)
        self.scheduler.computed(plan.items)
        gaps = self._deliver(tokens, now, record)
        self.telemetry.token_gaps(now, gaps)
        record.apply = self._clock() - now

    def _deliver(
        self, tokens: list[tuple[Request, int | None]], now: int, record: StepRecord
    ) -> list[int]:
        """Each new token into its request and its stream; those that it ends, end.

        Returns the nanoseconds since each one's last token. This loop is the step's own cost:
        it runs once a token.
        """
        gaps: list[int] = []
        texts, start = self.texts, self._clock()
        for request, token in tokens:
            try:
                if token is None:
                    raise EngineError("the model's output is not finite")
                times = request.stamps.tokens
                if times:
                    gaps.append(now - times[-1])
                else:
                    self.telemetry.meters.first_token(request, now)
                times.append(now)
                request.append(token)
                record.sampled += 1
                if request.logprobs is not None:
                    request.stream.note(request.logprobs)
                    request.logprobs = None
                if token in request.stop_ids:
                    self.finish(request, FinishReason.STOP, last=[token])
                    continue
                text = texts[request.id]
                request.stream.put(text.push((token,)), (token,))
                if text.stopped:
                    self.finish(request, FinishReason.STOP)
                elif len(request.output_ids) >= request.ends_at:
                    self.finish(request, FinishReason.LENGTH)
            except Exception as error:
                self._break_off(request, error)
        self._charge_detokenizing(tokens, self._clock() - start)
        return gaps

    def _charge_detokenizing(self, tokens: list[tuple[Request, int | None]], spent: int) -> None:
        """To each its share: reading the clock twice a token would cost as much again."""
        share = spent // max(len(tokens), 1)
        for request, _ in tokens:
            request.stamps.detokenize_ns += share

    # --- when things go wrong -----------------------------------------------------------

    def _break_off(self, request: Request, error: Exception) -> None:
        """What one request raised ends that request and nobody else's."""
        log.error("%s failed: %s: %s", request.id, type(error).__name__, error)
        self.telemetry.event("error", f"{request.id} failed: {error}", limit=True)
        self.finish(request, FinishReason.ERROR, f"internal error: {error}")

    def _fail(self, plan: Plan, error: Exception) -> None:
        """A step broke: its requests end with the error, everybody else goes on."""
        log.exception("a step failed")
        self.telemetry.event("error", f"step failed: {type(error).__name__}: {error}", limit=True)
        for item in plan.items:
            self.finish(item.request, FinishReason.ERROR, f"internal error: {error}")

    # --- requests -----------------------------------------------------------------------

    def _admit(self, request: Request) -> None:
        if request.id not in self.open:
            return  # it ended while the tokenizer had it
        request.stamps.queued = self._clock()
        request.stream.prompt_tokens = len(request.prompt_ids)
        self.telemetry.arrived(request)
        if request.cancelled:
            self.finish(request, FinishReason.CANCELLED)
            return
        refusal = request.error or self._refusal(request)
        if refusal is not None:
            self.telemetry.event("reject", f"{request.id}: {refusal}", limit=True)
            self.finish(request, FinishReason.REJECTED, refusal)
            return
        params, eos = request.params, self.sampler.eos_ids
        request.stop_ids = frozenset(params.stop_token_ids) | (
            frozenset() if params.ignore_eos else eos
        )
        room = self.scheduler.max_model_len - len(request.prompt_ids)
        request.ends_at = min(params.max_tokens, room)
        decoder = self.loaded.tokenizer.detokenizer()
        self.texts[request.id] = OutputText(decoder, request.params.stop)
        self.scheduler.add(request)

    def _refusal(self, request: Request) -> str | None:
        """Why the request is not taken in, or None."""
        vocab, most = self.loaded.spec.vocab, self.config.max_waiting
        if self.draining:
            request.stream.try_later = True
            return "the engine drains: it finishes what it has and takes nothing new; try later"
        if request.prompt_ids and not 0 <= max(request.prompt_ids) < vocab:
            return f"the prompt has token {max(request.prompt_ids)}; the vocabulary ends at {vocab}"
        if len(self.scheduler.waiting) >= most:
            request.stream.try_later = True
            return f"the queue is full ({most} requests wait); try later"
        return self.scheduler.refusal(request)

    def finish(
        self,
        request: Request,
        reason: FinishReason,
        error: str | None = None,
        last: list[int] | None = None,
    ) -> None:
        """The one way out of the engine: frees everything and closes the stream."""
        if self.open.pop(request.id, None) is None:
            return
        text = self.texts.pop(request.id, None)
        rest = ""
        try:
            if text is not None and error is None:
                rest = text.finish()
        except Exception as broken:
            error = f"internal error: {broken}"
        finally:
            self.scheduler.finish(request, reason)
            request.stamps.finished = self._clock()
            self.telemetry.ended_with(request, reason)
            request.stream.close(reason, rest, error, last or [])

    def _settle(self, plan: Plan) -> None:
        """Tell the world what planning itself decided."""
        self.bound_by = plan.bound_by
        for request, reason in plan.ended:
            self.telemetry.event(reason.value, f"{request.id} ended: {reason.value}", limit=True)
            self.finish(request, reason)
        for request in plan.preempted:
            self.telemetry.totals["preemptions"] += 1
            self.telemetry.meters.totals["preemptions"] += 1
            self.telemetry.event("preempt", f"preempted {request.id}")

    def reset(self) -> None:
        """Forget what was measured and what the prefix cache keeps."""
        pool = self.scheduler.pool
        pool.drop_cached()
        pool.peak_used = pool.used
        self.telemetry = Telemetry(self.telemetry.meters)

    # --- settings that move ---------------------------------------------------------------

    def set_cap(self, cap: int) -> None:
        self._set_cap(cap, "set by hand")
        self.publish()

    def set_paused(self, paused: bool) -> None:
        if paused != self.scheduler.paused:
            self.scheduler.paused = paused
            self.telemetry.event("pause", f"admission {'paused' if paused else 'resumed'}")
        self.publish()

    def set_dynamic(self, dynamic: bool) -> None:
        if dynamic != self.dynamic:
            self.dynamic = dynamic
            self.telemetry.event("config", f"dynamic batch {'on' if dynamic else 'off'}")
        self.publish()

    def set_draining(self, draining: bool) -> None:
        if draining != self.draining:
            self.draining = draining
            what = "draining: nothing new is accepted" if draining else "accepting again"
            self.telemetry.event("config", what)
        self.publish()

    def set_max_wait(self, milliseconds: float) -> None:
        """Tell both who wait by it: a batch that fills, and the moving cap."""
        before, self.max_wait_ms = self.max_wait_ms, milliseconds
        policy, controller = self.scheduler.policy, self._controller
        if isinstance(policy, Static):
            policy.max_wait_ns = int(milliseconds * 1e6)
        controller.objective = replace(controller.objective, max_wait_ms=milliseconds)
        if milliseconds != before:
            change = f"{before:g} → {milliseconds:g} ms"
            self.telemetry.event("config", f"longest wait {change}")
        self.publish()

    def _set_cap(self, cap: int, why: str) -> None:
        if cap != self.scheduler.cap:
            self.telemetry.event("cap", f"cap {self.scheduler.cap} → {cap}: {why}")
            self.scheduler.cap = cap

    def _move_cap(self, record: StepRecord) -> None:
        """The moving cap looks at the step that has just ended."""
        if record.decode_tokens:
            self._controller.observe(record.total_ms)
        scheduler = self.scheduler
        oldest = scheduler.waiting.oldest_arrival()
        wait_ms = (record.end - oldest) / 1e6 if oldest is not None else 0.0
        decision = self._controller.decide(
            record.end, scheduler.cap, record.running, len(scheduler.waiting), wait_ms
        )
        if decision is not None:
            self._set_cap(*decision)

    # --- telemetry ------------------------------------------------------------------------

    def _record(self, plan: Plan, record: StepRecord) -> None:
        record.end = self._clock()
        record.running, record.waiting = len(plan.items), len(self.scheduler.waiting)
        record.bound_by = plan.bound_by
        self.telemetry.step(record)
        self.telemetry.kv_bytes += self.cache.bytes_in_use(self.scheduler.pool)
        self.telemetry.kv_tokens += self.scheduler.tokens_in_cache
        if self.dynamic:
            self._move_cap(record)
        self._publish_if_wanted()

    def _publish_if_wanted(self) -> None:
        if self.wanted and time.monotonic() >= self._snapshot_due:
            self.publish()

    def measure_memory(self) -> None:
        """What the estimate of memory traffic is held against."""
        if self.backend.name == "cpu":
            from kernels.roofline import memory_read_rate

            self.bandwidth_peak = memory_read_rate()

    def publish(self) -> None:
        """Build a Snapshot of now and make it the latest."""
        self.wanted = False
        self.snapshot = observe(self, self.snapshot.seq + 1)
        self._snapshot_due = time.monotonic() + SNAPSHOT_INTERVAL_S

    def end_all(self) -> None:
        """End what is left, so that nobody waits for ever on a stream."""
        self._take_in()
        for request in list(self.open.values()):
            self.finish(request, FinishReason.CANCELLED, "the engine was stopped")
        self.publish()
