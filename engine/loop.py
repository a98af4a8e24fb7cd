"""Loop: take in → plan → compute → accept → publish → record, and again.

The engine, the simulator and the demo run this one; what differs is who computes (a model, or a
cost model) and whose time passes (the machine's, or a virtual one). No torch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from engine.config import EngineConfig
from engine.errors import EngineError, EngineStopped
from engine.observing.clock import Clock, MachineClock
from engine.observing.ledger import Ledger, take_ledger
from engine.observing.observer import Observer
from engine.observing.telemetry import StepRecord, Telemetry
from engine.request import FinishReason, Request, Status
from engine.scheduling.assemble import make_speculation
from engine.scheduling.controls import Controls
from engine.scheduling.intake import Call, Cancel, Intake, Submit
from engine.scheduling.plan import Compute, Computed, Plan, PlanItem
from engine.scheduling.scheduler import Scheduler
from engine.text.output import OutputText

log = logging.getLogger("evewatch.engine")


class BrokenBooks(BaseException):
    """Who holds what is no longer known. Not an Exception: whoever catches what one request or
    one step did wrong must not go on after this."""


class Loop:
    """Belongs to one thread at a time. From others: `intake`, and what `observer` shows.

    What `step` raises is a bug in planning, settling or recording: the loop is over, and `end`
    closes what is open.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        compute: Compute,
        clock: Clock | None = None,
        config: EngineConfig | None = None,
        intake: Intake | None = None,
        open_requests: dict[str, Request] | None = None,
    ) -> None:
        self.scheduler, self.compute = scheduler, compute
        self.clock = clock or MachineClock()
        self.config = config or EngineConfig()
        self.intake = intake or Intake()
        self.open = {} if open_requests is None else open_requests
        """Every request between submit and its end, whoever has it at the moment."""
        self.texts: dict[str, OutputText] = {}
        """Of those that have come in."""
        self.telemetry = Telemetry(self.clock)
        self.speculation = make_speculation(self.config, compute.drafter)
        self.controls = Controls(scheduler, self.config, self.telemetry.event)
        self.queue_full = f"the queue is full ({self.config.max_waiting} requests wait); try later"
        self._turned_away = 0
        """Those of the intake that have been counted."""
        self.bound_by: str | None = None
        self.round_began = self.clock.ns()
        """From any thread: a step that never ends has an old one."""
        self.on_step: Callable[[Plan, StepRecord], None] | None = None
        """Told of every step that computed, when it is over: whoever learns what steps cost."""
        self.observer = Observer(self)

    # --- the round --------------------------------------------------------------------

    def step(self) -> bool:
        """One round; False when there was nothing to compute."""
        self.round_began = start = self.clock.ns()
        self.take_in()
        plan = self.scheduler.plan(self.clock.ns())  # later than what was just queued
        drafting = self._draft(plan)
        self._settle(plan)
        self.observer.watch(len(plan.items), start)
        if plan.items:
            record = StepRecord(plan=self.clock.ns() - start, draft=drafting)
            try:
                computed = self.compute.run(plan)
                self._accept(plan, computed, record)
            except Exception as error:
                self._fail(plan, error)
            self._record(plan, record)
        self.observer.look()
        return bool(plan.items)

    def take_in(self) -> None:
        """What has come since the last round, in order."""
        turned_away = self.intake.turned_away
        if turned_away != self._turned_away:
            self.telemetry.turned_away(turned_away - self._turned_away, self.queue_full)
            self._turned_away = turned_away
        for command in self.intake.drain():
            match command:
                case Submit(request):
                    self.admit(request)
                case Cancel(request_id):
                    found = self.open.get(request_id)
                    if found is not None and found.status is not Status.NEW:
                        self.finish(found, FinishReason.CANCELLED)
                case Call():
                    command.run()

    def _draft(self, plan: Plan) -> int:
        """Let decodes have drafts, where that pays. Nanoseconds that looking for them took."""
        speculation = self.speculation
        if speculation is None or not plan.items:
            return 0
        start, paid = self.clock.ns(), speculation.pays
        speculation.extend(plan, self.scheduler.token_budget - plan.tokens)
        if speculation.pays != paid:
            self.telemetry.event("speculation", speculation.state)
        return self.clock.ns() - start

    def _settle(self, plan: Plan) -> None:
        """Tell the world what planning itself decided."""
        self.bound_by = plan.bound_by
        for request, reason in plan.ended:
            self.telemetry.event(reason.value, f"{request.id} ended: {reason.value}", limit=True)
            self.finish(request, reason)
        for request in plan.preempted:
            self.telemetry.preempted(request)

    def _accept(self, plan: Plan, computed: Computed, record: StepRecord) -> None:
        """What is sound enters the books, then the prefix index, then the streams."""
        now = self.clock.ns()
        record.build, record.forward = computed.build, computed.forward
        record.sample = computed.sample
        record.count(plan)
        items = plan.items
        if kept := computed.kept:
            record.accepted_tokens = self._count_drafts(items, kept)
            items = [i._replace(tokens=kept[i.request.id]) if i.draft else i for i in items]
        damaged = [*computed.damaged, *(r for r, token in computed.tokens if token is None)]
        if damaged:
            for request in damaged:
                self.scheduler.distrust(request)
                self._break_off(request, EngineError("the model's output is not finite"))
            items = [item for item in items if item.request.status is Status.RUNNING]
        self.scheduler.publish(self.scheduler.accept(items))
        record.sampled = self._deliver(computed, now)
        record.apply = self.clock.ns() - now

    def _count_drafts(self, items: Iterable[PlanItem], kept: dict[str, int]) -> int:
        """How many draft tokens of a step were right."""
        accepted = 0
        for item in items:
            if item.draft:
                request, right = item.request, kept[item.request.id] - 1
                self.telemetry.speculated(len(item.draft), right)
                request.drafted += len(item.draft)
                request.accepted += right
                accepted += right
        return accepted

    def _deliver(self, computed: Computed, now: int) -> int:
        """Each token into its request and its stream; those that it ends, end. How many.

        This loop is the step's own cost: it runs once a token.
        """
        gaps: list[int] = []
        sampled, texts, start = 0, self.texts, self.clock.ns()
        for request, token in computed.tokens:
            if token is None or request.status is Status.FINISHED:  # by a token before it
                continue
            try:
                times = request.stamps.tokens
                if times:
                    gaps.append(now - times[-1])
                else:
                    self.telemetry.meters.first_token(request, now)
                times.append(now)
                request.append(token)
                sampled += 1
                if request.logprobs:
                    request.stream.note(request.logprobs.pop(0))
                if token in request.stop_ids:
                    if request.params.include_stop:
                        request.stream.put(texts[request.id].push((token,)), ())
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
        # To each its share: reading the clock twice a token would cost as much again.
        share = (self.clock.ns() - start) // max(len(computed.tokens), 1)
        if share:
            for request, _ in computed.tokens:
                request.stamps.detokenize_ns += share
        self.telemetry.token_gaps(now, gaps)
        return sampled

    def _record(self, plan: Plan, record: StepRecord) -> None:
        record.end = self.clock.ns()
        record.running, record.waiting = len(plan.items), len(self.scheduler.waiting)
        record.bound_by = plan.bound_by
        if self.speculation is not None:
            self.speculation.times.note(plan.tokens, record.build + record.forward + record.sample)
        self.note_step(record, self.scheduler.tokens_in_cache)
        if self.on_step is not None:
            self.on_step(plan, record)

    def note_step(self, record: StepRecord, tokens_in_cache: int) -> None:
        """A step is over: telemetry hears of it, and the moving cap looks at it."""
        telemetry = self.telemetry
        telemetry.step(record)
        telemetry.kv_bytes += self.compute.facts.kv.in_use(self.scheduler.pool)
        telemetry.kv_tokens += tokens_in_cache
        decoded = record.total_ms if record.decode_tokens else None
        self.controls.move_cap(record.end, self.clock.unix(), record.running, decoded)

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

    def admit(self, request: Request) -> None:
        """Take in a request of `open`; one that ended meanwhile is dropped."""
        try:
            self._admit(request)
        except Exception as error:
            self._break_off(request, error)

    def _admit(self, request: Request) -> None:
        if request.id not in self.open:
            return
        request.stamps.queued = self.clock.ns()
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
        params, eos = request.params, self.compute.eos_ids
        request.stop_ids = frozenset(params.stop_token_ids) | (
            frozenset() if params.ignore_eos else eos
        )
        room = self.scheduler.max_model_len - len(request.prompt_ids)
        request.ends_at = min(params.max_tokens, room)
        decoder, early = self.compute.detokenizer(), params.min_tokens - 1
        self.texts[request.id] = OutputText(decoder, params.stop, params.include_stop, early)
        self.scheduler.add(request)

    def _refusal(self, request: Request) -> str | None:
        """Why the request is not taken in, or None."""
        vocab = self.compute.facts.vocab
        if self.controls.draining:
            request.stream.try_later = True
            return "the engine drains: it finishes what it has and takes nothing new; try later"
        if request.prompt_ids and not 0 <= max(request.prompt_ids) < vocab:
            return f"the prompt has token {max(request.prompt_ids)}; the vocabulary ends at {vocab}"
        if (field := request.params.beyond(vocab)) is not None:
            return f"{field}: names a token that is not one of the vocabulary's {vocab}"
        if len(self.scheduler.waiting) >= self.config.max_waiting:
            request.stream.try_later = True
            return self.queue_full
        return self.scheduler.refusal(request)

    def finish(
        self,
        request: Request,
        reason: FinishReason,
        error: str | None = None,
        last: list[int] | None = None,
    ) -> None:
        """The one way out: frees everything that the request held and closes its stream."""
        if self.open.pop(request.id, None) is None:
            return
        text = self.texts.pop(request.id, None)
        if self.speculation is not None:
            self.speculation.drafter.forget(request)
        rest = ""
        try:
            if text is not None and error is None:
                rest = text.finish()
        except Exception as broken:
            error = f"internal error: {broken}"
        try:
            self.scheduler.finish(request, reason)
            request.stamps.finished = self.clock.ns()
            self.telemetry.ended_with(request, reason)
            self.controls.ended(request)
        except Exception as broken:
            raise BrokenBooks(f"{type(broken).__name__}: {broken}") from broken
        finally:
            request.stream.close(reason, rest, error, last or [])

    def end(self, reason: FinishReason, error: str) -> None:
        """Close every open stream and answer every call, whatever state the books are in.

        With the reason ERROR, Snapshots show `error` as an alarm from now on.
        """
        if reason is FinishReason.ERROR:
            self.observer.watchdog.reason = error
        for request in list(self.open.values()):
            try:
                self.finish(request, reason, error)
            except (Exception, BrokenBooks):
                log.exception("%s could not be ended properly", request.id)
            request.stream.close(reason, error=error)  # if it was not
        for command in self.intake.drain():
            if isinstance(command, Call):
                command.refuse(EngineStopped(error))
        self.observer.publish()

    # --- between two rounds ---------------------------------------------------------------

    def ledger(self) -> Ledger:
        """Who holds what."""
        return take_ledger(self.open, self.texts, self.scheduler)

    def reset(self) -> None:
        """Forget what was measured and what the prefix cache keeps."""
        pool = self.scheduler.pool
        pool.drop_cached()
        pool.peak_used = pool.used
        self.telemetry.reset()
