"""Engine: the front of the engine thread. Everything here may be called from any thread.

Two crossings lead in and out of the thread: the intake (submit, cancel, call), and the
outgoing streams with the latest Snapshot. What happens behind them is engine/loop.py.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from engine.config import EngineConfig
from engine.errors import ConfigError, EngineStopped
from engine.loop import BrokenBooks, Loop
from engine.observing import serving
from engine.observing.clock import Clock, MachineClock
from engine.observing.ledger import Ledger
from engine.observing.objectives import Objective
from engine.observing.telemetry import Telemetry
from engine.observing.watchable import MEASURE, Watchable
from engine.request import FinishReason, Priority, Request, SamplingParams
from engine.scheduling.controls import Controls
from engine.scheduling.intake import Call, Cancel, Intake, Submit
from engine.scheduling.scheduler import Scheduler
from engine.snapshot import Snapshot
from engine.stream import Stream
from engine.text.completion import (
    Completion,
    Encoded,
    Prompt,
    check_prompt,
    completion,
    is_token_ids,
)

if TYPE_CHECKING:
    from engine.execution.calibration import Calibration
    from engine.execution.compute import ModelCompute
    from engine.execution.kv_cache import KvCache
    from engine.execution.runner import ModelRunner
    from engine.execution.sampler import Sampler
    from engine.models import LoadedModel
    from engine.scheduling.pages import PagePool
    from kernels.dispatch import Backend

log = logging.getLogger("evewatch.engine")
T = TypeVar("T")
IDLE_WAIT_S = 0.25
COLLECT_WAIT_S = 0.002
"""Between looks while a static batch fills."""
TOKENIZER_THREADS = 2
NOT_LOADED = "the model is not loaded yet; call start() or load()"


class Engine(Watchable):
    """`start` loads the model and runs the thread; or `load`, then `step` by hand.

    `loaded` and `calibration` give what is in memory already. `clock` is monotonic ns. Snapshots
    count who meets the `objectives`.
    """

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel | None = None,
        clock: Clock | None = None,
        calibration: Calibration | None = None,
        objectives: Sequence[Objective] = (),
    ) -> None:
        self.config = config
        self._objectives = objectives
        self._loaded, self._calibration = loaded, calibration
        self.clock = clock or MachineClock()
        self._intake = Intake()
        self._open: dict[str, Request] = {}
        self._tokenizers = ThreadPoolExecutor(TOKENIZER_THREADS, "evewatch-tokenize")
        self._loop: Loop | None = None
        self._compute: ModelCompute | None = None
        self._thread: threading.Thread | None = None
        self._serving: Future[None] = Future()
        """Done when the thread has loaded, with what stopped it from doing so."""
        self._closed = False
        """Accepts nothing more; `_stopping` follows, and then `_stopped`."""
        self._stopping = False
        self._draining = False
        self._stopped = False
        self._failed: str | None = None
        """Why the engine ended by itself: everybody who asks for anything is told so."""
        self._numbers = itertools.count(1)
        self._door = threading.Lock()
        """Held while a request is handed over, so that none slips in behind `stop`."""

    # --- life -----------------------------------------------------------------------

    def load(self) -> None:
        """Read the model and lay out the cache. Raises ModelError or ConfigError."""
        from engine.execution.load import build

        if self._loop is None:
            compute, scheduler = build(self.config, self._loaded, self._calibration, self.clock)
            self._compute = compute
            self._loop = Loop(scheduler, compute, self.clock, self.config, self._intake, self._open)
            self._loop.telemetry.hold_to(self._objectives)
            serving.began(self)

    def start(self) -> None:
        """Load and serve, both on a thread of its own; returns once it serves.

        The kernels' threads work for one caller at a time, and OpenMP gives each thread that runs
        one of torch's parallel loops a pool of its own; with a second pool about, a step takes a
        fifth longer. So nobody but the engine's thread computes.
        Raises what `load` raises.
        """
        if self._stopped:
            raise EngineStopped(self._failed or "the engine has been stopped; make a new one")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="evewatch-engine", daemon=True)
            self._thread.start()
        self._serving.result()

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
        elif self._loop is not None and not self._stopped:
            self._end()

    def _run(self) -> None:
        try:
            self.load()
            self.loop.observer.bandwidth_peak = self.compute.memory_read_rate()
        except BaseException as error:
            self._serving.set_exception(error)
            return
        self._serving.set_result(None)
        try:
            self._serve()
        except BaseException as error:
            self._end(error)
        else:
            self._end()

    def _serve(self) -> None:
        while not self._stopping or self._draining:
            if self.loop.step():
                continue
            if self._stopping and not self.scheduler.has_work:
                return
            if self.scheduler.has_work:
                self._intake.wait(COLLECT_WAIT_S)
            else:
                self.loop.observer.publish()
                self._intake.wait(IDLE_WAIT_S)

    def _end(self, error: BaseException | None = None) -> None:
        """Nobody waits for what will not come: every stream and every call ends now."""
        serving.ended(self)
        with self._door:
            self._closed = self._stopped = True
            if error is not None:
                self._failed = f"the engine has ended: {type(error).__name__}: {error}"
        if self._failed is None:
            self.loop.end(FinishReason.CANCELLED, "the engine was stopped")
        else:
            log.critical("%s", self._failed, exc_info=error)
            self.loop.end(FinishReason.ERROR, self._failed)

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self) -> bool:
        """One round by hand; False when there was nothing to compute.

        Raises EngineStopped when the round broke, and ever after.
        """
        if self._failed is None:
            try:
                return self.loop.step()
            except (Exception, BrokenBooks) as error:
                self._end(error)
        raise EngineStopped(self._failed)

    # --- requests ---------------------------------------------------------------------

    def encode(self, prompt: Prompt, add_special: bool = True) -> Future[Encoded]:
        """Token ids of a prompt, in the tokenizer pool: to look at them before `submit`, or to
        submit them more than once. `add_special` puts BOS before a text if the model wants one.
        The future raises RequestError for what has no tokens."""
        check_prompt(prompt)
        tokenizer = self.loaded.tokenizer

        def work() -> Encoded:
            start = self.clock.ns()
            ids = tokenizer.ids(prompt, add_special)
            return Encoded(ids, start, self.clock.ns())

        with self._door:
            self._check_open()
            return self._tokenizers.submit(work)

    def submit(
        self,
        prompt: Prompt | Encoded,
        params: SamplingParams | None = None,
        *,
        source: str = "api",
        client: str = "",
        priority: Priority = Priority.NORMAL,
        timeout_s: float | None = None,
        arrival_ns: int | None = None,
        on_event: Callable[[], None] | None = None,
    ) -> Stream:
        """Queue a prompt; its output comes through the returned stream.

        `client` tells requests of one source apart, for the lengths that are learnt of them.
        `arrival_ns`: when the caller meant to send it (monotonic), now by default. A prompt
        that can never be served ends its stream with `rejected` and the reason.
        Raises RequestError for a prompt of the wrong type, EngineStopped before `load` and
        after `stop`.
        """
        if not isinstance(prompt, Encoded):
            check_prompt(prompt)
        now, number = self.clock.ns(), next(self._numbers)
        stream = Stream(f"r-{number}", on_event)
        request = Request(stream.request_id, params or SamplingParams(), stream, number=number)
        request.source, request.client, request.priority = source, client, priority
        stream.stamps = stamps = request.stamps
        stamps.received, stamps.arrival = now, arrival_ns or now
        limit = timeout_s if timeout_s is not None else self.config.timeout_s
        if limit is not None:
            request.deadline = now + int(limit * 1e9)
        if isinstance(prompt, Encoded):
            request.set_prompt(list(prompt.ids))
            stamps.tokenize_start, stamps.tokenize_end = prompt.start, prompt.end
        elif is_token_ids(prompt):
            request.set_prompt(list(prompt))
        with self._door:
            self._check_open()
            if len(self._open) >= self.config.max_waiting + self.config.max_batch:
                self._intake.turned_away += 1  # the loop counts it; nothing else may pile up
                stream.try_later = True
                stream.close(FinishReason.REJECTED, error=self.loop.queue_full)
                return stream
            self._open[request.id] = request
            if isinstance(prompt, Encoded) or is_token_ids(prompt):
                self._intake.put(Submit(request))
            else:
                self._tokenizers.submit(self._tokenize, request, prompt)
        return stream

    def _check_open(self) -> None:
        if self._loop is None:
            raise EngineStopped(NOT_LOADED)
        if self._closed:
            raise EngineStopped(self._failed or "the engine is stopping and accepts nothing more")

    def cancel(self, request_id: str) -> None:
        """End a request in whatever state it is; unknown and ended ones are ignored."""
        request = self._open.get(request_id)
        if request is not None:
            request.cancelled = True  # seen when it comes in, if the tokenizer still has it
            self._intake.put(Cancel(request_id))

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
        request.stamps.tokenize_start = self.clock.ns()
        try:
            if not request.cancelled:
                request.set_prompt(self.loaded.tokenizer.ids(prompt))
        except Exception as error:
            request.error = f"the prompt could not be tokenized: {error}"
        request.stamps.tokenize_end = self.clock.ns()
        self._intake.put(Submit(request))

    # --- settings that move -------------------------------------------------------------

    def set_cap(self, cap: int) -> None:
        """Most sequences that run at once, 1 … max_batch."""
        if not 1 <= cap <= self.config.max_batch:
            raise ConfigError(f"cap: {cap} is outside 1 … {self.config.max_batch}")
        self._change(lambda controls: controls.set_cap(cap))

    def set_paused(self, paused: bool) -> None:
        """Stop or resume admitting waiting requests."""
        self._change(lambda controls: controls.set_paused(paused))

    def set_dynamic(self, dynamic: bool) -> None:
        """Let the cap move with the queue, or keep it where it is."""
        self._change(lambda controls: controls.set_dynamic(dynamic))

    def set_max_wait(self, milliseconds: float) -> None:
        """How long a static batch waits to fill; a moving cap opens for one that waited so."""
        if not 0 < milliseconds < math.inf:
            raise ConfigError(f"max_wait_ms: expected a number above 0, got {milliseconds!r}")
        self._change(lambda controls: controls.set_max_wait(float(milliseconds)))

    def set_draining(self, draining: bool) -> None:
        """Finish what was accepted and reject what comes from now on; or accept again."""
        self._change(lambda controls: controls.set_draining(draining))

    def _change(self, change: Callable[[Controls], None]) -> None:
        """Between two steps; nobody waits for it, and the next Snapshot shows it."""

        def apply() -> None:
            change(self.loop.controls)
            self.loop.observer.publish()

        self._post(apply)

    # --- between two steps ----------------------------------------------------------------

    def ledger(self, timeout: float = 10.0) -> Ledger:
        """Who holds what, as the loop sees it between two steps."""
        return self.call(self.loop.ledger, timeout)

    def reset(self, timeout: float = 10.0) -> None:
        """Forget what was measured and what the prefix cache keeps: after a warm-up, say."""
        self.call(self.loop.reset, timeout)

    def call(self, function: Callable[[], T], timeout: float = 10.0) -> T:
        """Run `function` between two steps, on the loop's thread, and give what it gives.

        Where no thread serves the intake, this call does. Raises EngineStopped for an engine
        that ended by itself, TimeoutError after `timeout` seconds.
        """
        answer = self._post(function)
        if self._thread is None or (self._stopped and self._failed is None):
            self.loop.take_in()
        return answer.result(timeout)

    def _post(self, function: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        with self._door:
            if self._failed is not None:
                raise EngineStopped(self._failed)
            self._intake.put(Call(function, answer))
        return answer

    # --- what can be seen -----------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The latest one; taking it makes the engine build the next, at most four a second."""
        if self._loop is None:
            return Snapshot()
        self._loop.observer.wanted = True
        return self._loop.observer.snapshot

    def watch_pages(self, seconds: float = 2.0) -> None:
        """Snapshots of the next seconds say whose each page is and how old: a panel that draws
        it asks again and again."""
        if self._loop is not None:
            self._loop.observer.watch_pages(seconds)

    def why_not(self, control: str) -> str:
        """Why that control is not to be had, "" if it is."""
        return "" if control == MEASURE else super().why_not(control)

    def alarm(self) -> str | None:
        """Why nobody can be served, or None: from any thread, and of a hung engine too."""
        if self._loop is None:
            return "the model is not loaded yet"
        if self._failed is not None:
            return self._failed
        if self._closed:
            return "the engine is stopping" if not self._stopped else "the engine has stopped"
        if self._loop.observer.watchdog.reason is not None:
            return self._loop.observer.watchdog.reason
        if self._thread is not None and not self._thread.is_alive():
            return "the engine's thread is gone"
        silent = (self.clock.ns() - self._loop.round_began) / 1e9
        if self._thread is not None and silent > self.config.stall_s + IDLE_WAIT_S:
            return f"the engine's thread has been in one step for {silent:.0f} s"
        return None

    @property
    def loop(self) -> Loop:
        if self._loop is None:
            raise EngineStopped(NOT_LOADED)
        return self._loop

    @property
    def compute(self) -> ModelCompute:
        if self._compute is None:
            raise EngineStopped(NOT_LOADED)
        return self._compute

    @property
    def loaded(self) -> LoadedModel:
        return self.compute.loaded

    @property
    def cache(self) -> KvCache:
        return self.compute.cache

    @property
    def runner(self) -> ModelRunner:
        return self.compute.runner

    @property
    def sampler(self) -> Sampler:
        return self.compute.sampler

    @property
    def scheduler(self) -> Scheduler:
        return self.loop.scheduler

    @property
    def pool(self) -> PagePool:
        return self.loop.scheduler.pool

    @property
    def telemetry(self) -> Telemetry:
        return self.loop.telemetry

    @property
    def backend(self) -> Backend:
        return self.compute.backend

    @property
    def device(self) -> str:
        return self.compute.device


__all__ = ["Completion", "Engine", "Prompt", "completion"]
