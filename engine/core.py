"""Engine: one thread that owns scheduler, pages and tensors, and steps them.

Two crossings lead in and out of that thread: the intake (submit, cancel, reconfigure), and
the outgoing streams with the latest Snapshot. Nothing else is shared.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from engine.errors import ConfigError, EngineError, EngineStopped, RequestError
from engine.intake import Cancel, Intake, Reconfigure, Submit
from engine.output import OutputText
from engine.request import FinishReason, Request, SamplingParams, Stamps, Status
from engine.scheduler import Plan
from engine.snapshot import Snapshot
from engine.stream import Stream
from engine.telemetry import StepRecord, Telemetry

if TYPE_CHECKING:
    from engine.models import LoadedModel
    from engine.runner import ModelRunner
    from engine.sampler import Sampler

log = logging.getLogger("evewatch.engine")

SNAPSHOT_INTERVAL_S = 0.25
IDLE_WAIT_S = 0.25
TOKENIZER_THREADS = 2

Prompt = str | list[int] | list[dict[str, str]]
"""Text, token ids, or a chat: [{"role": …, "content": …}, …]."""


@dataclass(frozen=True)
class Completion:
    """What `generate` returns for one prompt."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    stamps: Stamps
    error: str | None = None


class Engine:
    """`start` loads the model and runs the thread; or `load`, then `step` by hand.

    `loaded` gives a model that is in memory already. `clock` is monotonic nanoseconds.
    """

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.config = config
        self.telemetry = Telemetry()
        self._loaded = loaded
        self._clock = clock
        self._intake = Intake()
        self._tokenizers = ThreadPoolExecutor(TOKENIZER_THREADS, "evewatch-tokenize")
        self._texts: dict[str, OutputText] = {}
        self._thread: threading.Thread | None = None
        self._closed = False
        """Accepts nothing more; `_stopping` follows, and then `_stopped`."""
        self._stopping = False
        self._draining = False
        self._stopped = False
        self._numbers = itertools.count(1)
        self._door = threading.Lock()
        """Held while a request is handed over, so that none slips in behind `stop`."""
        self._snapshot = Snapshot()
        self._snapshot_due = 0.0
        self._bound_by: str | None = None
        self._ready = False

    # --- life -----------------------------------------------------------------------

    def load(self) -> None:
        """Read the model and lay out the cache. Raises ModelError or ConfigError."""
        from engine import setup

        if not self._ready:
            parts = setup.build(self.config, self._loaded)
            self._loaded = parts.loaded
            self._runner: ModelRunner = parts.runner
            self._sampler: Sampler = parts.sampler
            self.cache = parts.cache
            self.backend = parts.backend
            self.device = parts.device
            self.scheduler = parts.scheduler
            self.pool = parts.scheduler.pool
            self._ready = True
            self.publish()

    def start(self) -> None:
        """Load, then serve from an own thread."""
        self.load()
        if self._stopped:
            raise EngineStopped("the engine has been stopped; make a new one")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="evewatch-engine", daemon=True)
            self._thread.start()

    def stop(self, drain: bool = False, timeout: float = 30.0) -> None:
        """End the thread; with `drain`, finish what was accepted first. Idempotent."""
        with self._door:
            self._closed = True
        self._tokenizers.shutdown(wait=True)  # what was accepted reaches the intake
        self._draining = drain
        self._stopping = True
        self._intake.wake()
        if self._thread is not None:
            self._thread.join(timeout)
        elif self._ready and not self._stopped:
            self._shut_down()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def loaded(self) -> LoadedModel:
        """The model, once `load` has run."""
        if self._loaded is None:
            raise EngineStopped("the model is not loaded yet; call start() or load()")
        return self._loaded

    # --- requests: any thread ---------------------------------------------------------

    def submit(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        source: str = "api",
        timeout_s: float | None = None,
        arrival_ns: int | None = None,
        on_event: Callable[[], None] | None = None,
    ) -> Stream:
        """Queue a prompt; its output comes through the returned stream.

        `arrival_ns`: when the caller meant to send it (monotonic), now by default. A prompt
        that can never be served ends its stream with `rejected` and the reason.
        Raises RequestError for a prompt of the wrong type, EngineStopped after `stop`.
        """
        _check_prompt(prompt)
        now = self._clock()
        number = next(self._numbers)
        name = f"r-{number}"
        stream = Stream(name, on_event)
        request = Request(name, params or SamplingParams(), stream, number=number, source=source)
        stream.stamps = request.stamps
        request.stamps.received = now
        request.stamps.arrival = arrival_ns or now
        limit = timeout_s if timeout_s is not None else self.config.timeout_s
        if limit is not None:
            request.deadline = now + int(limit * 1e9)
        with self._door:
            if self._closed:
                raise EngineStopped("the engine is stopping and accepts nothing more")
            if isinstance(prompt, list) and (not prompt or isinstance(prompt[0], int)):
                request.prompt_ids = list(prompt)  # type: ignore[arg-type]
                self._intake.put(Submit(request))
            else:
                self._tokenizers.submit(self._tokenize, request, prompt)
        return stream

    def cancel(self, request_id: str) -> None:
        """End a request in whatever state it is; unknown and ended ones are ignored."""
        self._intake.put(Cancel(request_id))

    def set_cap(self, cap: int) -> None:
        """Most sequences that run at once, 1 … max_batch."""
        if not 1 <= cap <= self.config.max_batch:
            raise ConfigError(f"cap: {cap} is outside 1 … {self.config.max_batch}")
        self._intake.put(Reconfigure({"cap": cap}))

    def set_paused(self, paused: bool) -> None:
        """Stop or resume admitting waiting requests."""
        self._intake.put(Reconfigure({"paused": paused}))

    def snapshot(self) -> Snapshot:
        """The latest one, at most a quarter of a second old while the engine works."""
        return self._snapshot

    def reset_telemetry(self) -> None:
        """Forget what was measured so far (a warm-up). Call it while nothing runs."""
        self.telemetry = Telemetry()
        self.pool.peak_used = self.pool.used

    def generate(
        self, prompts: list[Prompt], params: SamplingParams | list[SamplingParams] | None = None
    ) -> list[Completion]:
        """Serve prompts together and wait for all of them."""
        many = params if isinstance(params, list) else [params or SamplingParams()] * len(prompts)
        self.start()
        streams = [self.submit(p, one) for p, one in zip(prompts, many, strict=True)]
        return [completion(stream) for stream in streams]

    def _tokenize(self, request: Request, prompt: Prompt) -> None:
        """In the tokenizer pool."""
        request.stamps.tokenize_start = self._clock()
        try:
            tokenizer = self.loaded.tokenizer
            if isinstance(prompt, str):
                request.prompt_ids = tokenizer.encode(prompt)
            else:
                request.prompt_ids = tokenizer.chat(prompt)  # type: ignore[arg-type]
        except Exception as error:
            request.error = f"the prompt could not be tokenized: {error}"
        request.stamps.tokenize_end = self._clock()
        self._intake.put(Submit(request))

    # --- the step: engine thread only -------------------------------------------------

    def step(self) -> bool:
        """One round; False when there was nothing to compute."""
        start = self._clock()
        self._take_in()
        plan = self.scheduler.plan(start)
        self._settle(plan)
        if not plan.items:
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
                        log.exception("admission failed")
                        self._finish(request, FinishReason.ERROR, f"internal error: {error}")
                case Cancel(request_id):
                    request_or_none = self.scheduler.find(request_id)
                    if request_or_none is not None:
                        self._finish(request_or_none, FinishReason.CANCELLED)
                case Reconfigure(changes):
                    self._reconfigure(changes)

    def _compute(self, plan: Plan, record: StepRecord) -> list[tuple[Request, int | None]]:
        times = [self._clock()]
        batch = self._runner.build(plan)
        times.append(self._clock())
        logits = self._runner.run(batch)
        times.append(self._clock())
        tokens = self._sampler.sample(logits, batch.sampling)
        times.append(self._clock())
        record.build, record.forward, record.sample = (b - a for a, b in itertools.pairwise(times))
        return list(zip(batch.sampling, tokens, strict=True))

    def _apply(
        self, plan: Plan, tokens: list[tuple[Request, int | None]], record: StepRecord
    ) -> None:
        now = self._clock()
        for item in plan.items:
            if item.padding:
                continue
            decodes = item.samples and bool(item.request.output_ids)
            record.decode_tokens += decodes
            record.prefill_tokens += item.tokens - decodes
            self.scheduler.computed(item)
        for request, token in tokens:
            try:
                if token is None:
                    raise EngineError("the model's output is not finite")
                self._accept(request, token, now)
                record.sampled += 1
            except Exception as error:
                self._break_off(request, error)
        record.apply = self._clock() - now

    def _break_off(self, request: Request, error: Exception) -> None:
        """One request failed; the others of its step go on."""
        log.error("%s failed: %s", request.id, error)
        self.telemetry.event("error", f"{request.id} failed: {error}", limit=True)
        self._finish(request, FinishReason.ERROR, f"internal error: {error}")

    def _accept(self, request: Request, token: int, now: int) -> None:
        """A new token: into the request, its text into the stream, and is it the last?"""
        params, stamps = request.params, request.stamps
        if not request.output_ids:
            stamps.first_token = stamps.prefill_end = now
        stamps.last_token = now
        request.output_ids.append(token)
        self.telemetry.token(request, now)
        if token in params.stop_token_ids or (
            token in self._sampler.eos_ids and not params.ignore_eos
        ):
            self._finish(request, FinishReason.STOP, last=[token])
            return
        text = self._texts[request.id]
        before = self._clock()
        piece = text.push([token])
        stamps.detokenize_ns += self._clock() - before
        request.stream.put(piece, [token])
        if text.stopped:
            self._finish(request, FinishReason.STOP)
        elif (
            len(request.output_ids) >= params.max_tokens
            or request.num_tokens >= self.scheduler.max_model_len
        ):
            self._finish(request, FinishReason.LENGTH)

    def _fail(self, plan: Plan, error: Exception) -> None:
        """A step broke: its requests end with the error, everybody else goes on."""
        log.exception("a step failed")
        self.telemetry.event("error", f"step failed: {type(error).__name__}: {error}", limit=True)
        for item in plan.items:
            self._finish(item.request, FinishReason.ERROR, f"internal error: {error}")

    # --- requests: engine thread --------------------------------------------------------

    def _admit(self, request: Request) -> None:
        request.stamps.queued = self._clock()
        request.stream.prompt_tokens = len(request.prompt_ids)
        self.telemetry.arrived(request)
        refusal = request.error or self._refusal(request)
        if refusal is not None:
            self.telemetry.event("reject", f"{request.id}: {refusal}", limit=True)
            self._finish(request, FinishReason.REJECTED, refusal)
            return
        decoder = self.loaded.tokenizer.detokenizer()
        self._texts[request.id] = OutputText(decoder, request.params.stop)
        self.scheduler.add(request)

    def _refusal(self, request: Request) -> str | None:
        """Why the request is not taken in, or None."""
        vocab, most = self.loaded.spec.vocab, self.config.max_waiting
        if request.prompt_ids and not 0 <= max(request.prompt_ids) < vocab:
            return f"the prompt has token {max(request.prompt_ids)}; the vocabulary ends at {vocab}"
        if len(self.scheduler.waiting) >= most:
            return f"the queue is full ({most} requests wait); try later"
        return self.scheduler.refusal(request)

    def _finish(
        self,
        request: Request,
        reason: FinishReason,
        error: str | None = None,
        last: list[int] | None = None,
    ) -> None:
        """The one way out of the engine: frees everything and closes the stream."""
        if request.status is Status.FINISHED and request.stamps.finished:
            return
        text = self._texts.pop(request.id, None)
        rest = ""
        try:
            if text is not None and error is None:
                rest = text.finish()
        finally:
            self.scheduler.finish(request, reason)
            request.stamps.finished = self._clock()
            self.telemetry.ended_with(request, reason)
            if last:
                request.stream.put("", last)
            request.stream.close(reason, rest, error)

    def _settle(self, plan: Plan) -> None:
        """Tell the world what planning itself decided."""
        self._bound_by = plan.bound_by
        for request, reason in plan.ended:
            self.telemetry.event(reason.value, f"{request.id} ended: {reason.value}", limit=True)
            self._finish(request, reason)
        for request in plan.preempted:
            self.telemetry.totals["preemptions"] += 1
            self.telemetry.event("preempt", f"preempted {request.id}", limit=False)

    def _reconfigure(self, changes: dict[str, Any]) -> None:
        if "cap" in changes and changes["cap"] != self.scheduler.cap:
            self.telemetry.event("cap", f"cap {self.scheduler.cap} → {changes['cap']}")
            self.scheduler.cap = changes["cap"]
        if "paused" in changes and changes["paused"] != self.scheduler.paused:
            self.scheduler.paused = changes["paused"]
            self.telemetry.event(
                "pause", "admission paused" if self.scheduler.paused else "admission resumed"
            )
        self.publish()

    # --- telemetry and the thread ---------------------------------------------------------

    def _record(self, plan: Plan, record: StepRecord) -> None:
        record.end = self._clock()
        record.running, record.waiting = len(plan.items), len(self.scheduler.waiting)
        record.bound_by = plan.bound_by
        self.telemetry.step(record)
        self.telemetry.kv_bytes += self.cache.bytes_in_use(self.pool)
        self.telemetry.kv_tokens += self.scheduler.tokens_in_cache
        if time.monotonic() >= self._snapshot_due:
            self.publish()

    def publish(self) -> None:
        """Build a Snapshot of now and make it the latest."""
        from engine.observe import observe

        self._snapshot = observe(self, self._snapshot.seq + 1, self._bound_by)
        self._snapshot_due = time.monotonic() + SNAPSHOT_INTERVAL_S

    def _run(self) -> None:
        try:
            while not self._stopping or self._draining:
                if self.step():
                    continue
                if self._stopping and not self.scheduler.has_work:
                    return
                self.publish()
                self._intake.wait(IDLE_WAIT_S)
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        """End what is left, so that nobody waits for ever on a stream."""
        self._stopped = True
        self._take_in()
        for request in list(self.scheduler.requests()):
            self._finish(request, FinishReason.CANCELLED, "the engine was stopped")
        self.publish()


def completion(stream: Stream, timeout: float | None = None) -> Completion:
    """Wait for all of a stream, as one answer. TimeoutError after `timeout` seconds."""
    event = stream.result(timeout)
    assert event.finish_reason is not None and stream.stamps is not None
    return Completion(
        event.text,
        event.token_ids,
        event.finish_reason,
        stream.prompt_tokens,
        stream.stamps,
        event.error,
    )


def _check_prompt(prompt: object) -> None:
    if isinstance(prompt, str):
        return
    if isinstance(prompt, list):
        if all(isinstance(t, int) and not isinstance(t, bool) and t >= 0 for t in prompt):
            return
        if all(isinstance(m, dict) for m in prompt):
            return
    raise RequestError(
        "prompt: expected text, a list of token ids, or a list of chat messages, "
        f"got {type(prompt).__name__}"
    )


__all__ = ["Completion", "Engine", "EngineError", "Prompt", "completion"]
