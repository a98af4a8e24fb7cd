"""The load client: sends requests when they are due, and keeps a record of each.

One event loop sends, waits and times out. In an open loop nothing that a target does holds up
the next request: what is not answered yet is simply in flight. In a closed loop each user
sends when the answer before has come.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from engine.errors import EngineError
from playbooks.load.arrivals import Closed
from playbooks.load.limits import CLIENT_LIMIT
from playbooks.load.loop import new_loop
from playbooks.load.record import INTERRUPTED, NOT_SENT, RequestRecord, now_ns
from playbooks.load.targets import Failed, Outgoing, Target
from playbooks.load.workload import LoadSpec, Planned, Workload

HEARTBEAT_S = 0.05
"""How often the loop's own delay is looked at."""
BEATS_PER_PROGRESS = 10
LIMIT_PAUSE_S = 0.1
"""A user who met a limit of this machine waits so long: others may give something back."""

Turns = Iterator[tuple[Planned, Any]]
"""Requests in order, each with what the target made of it."""


@dataclass
class LoadResult:
    """What a run left: the records, and what is needed to read them."""

    spec: LoadSpec
    target: dict[str, Any]
    records: list[RequestRecord] = field(default_factory=list)
    """In order of their end."""
    start: int = 0
    """Monotonic ns; the first request is due at or after it."""
    issued_until: int = 0
    """No request was sent after; what follows is the drain."""
    end: int = 0
    loop_lag_ms: list[float] = field(default_factory=list)
    """How late the loop woke, some twenty times a second."""
    shortened: int = 0
    """Requests cut to the longest that the target takes."""
    interrupted: bool = False
    stopped_by: str | None = None
    """What ended the run before its time, if it was not the operator."""


@dataclass(frozen=True)
class LoadProgress:
    """A look at a run while it goes on. `done` counts failures too."""

    elapsed_s: float
    sent: int
    done: int
    failed: int
    total: int | None
    ttft_ms: list[float]
    e2e_ms: list[float]
    """Of all requests completed so far: not to be changed."""

    @property
    def in_flight(self) -> int:
        return self.sent - self.done


class LoadRun:
    """One run of a load. `on_record` is called as each request ends."""

    def __init__(
        self,
        target: Target,
        spec: LoadSpec,
        on_progress: Callable[[LoadProgress], None] | None = None,
        on_record: Callable[[RequestRecord, int], None] | None = None,
    ) -> None:
        self._target, self._spec = target, spec
        self._on_progress, self._on_record = on_progress, on_record
        self._stop = asyncio.Event()
        self._open: set[asyncio.Task[Any]] = set()
        self._sent = self._failed = 0
        self._ttft: list[float] = []
        self._e2e: list[float] = []
        self._broken: Exception | None = None
        self.result = LoadResult(spec, {})

    def interrupt(self) -> None:
        """End the run now and keep what was measured. On the run's own loop."""
        self.result.interrupted = True
        self._stop.set()

    async def run(self) -> LoadResult:
        """Raises EngineError when the target cannot be used at all."""
        async with self._target as target:
            self.result.target = target.describe()
            workload = Workload(self._spec, target.limit)
            turns = _primed(self._outgoing(workload, target))
            self.result.start = self.result.issued_until = now_ns()
            closed = isinstance(self._spec.arrivals, Closed)
            sender = asyncio.create_task((self._start_users if closed else self._send)(turns))
            with _interrupts(self.interrupt):
                await self._watch(sender)
            self.result.end = now_ns()
            self.result.shortened = workload.shortened
        self._judge_end()
        return self.result

    async def _watch(self, sender: asyncio.Task[None]) -> None:
        """Until all is sent and answered, or the run is stopped."""
        stopped = asyncio.create_task(self._stop.wait())
        heart = asyncio.create_task(self._heart())
        heart.add_done_callback(self._landed)  # who watches may end the run: by raising
        await asyncio.wait((sender, stopped), return_when=asyncio.FIRST_COMPLETED)
        if self._open and not self._stop.is_set():
            drained = asyncio.create_task(asyncio.wait(set(self._open)))
            await asyncio.wait((drained, stopped), return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
        left = (sender, stopped, heart, *self._open)
        for task in left:
            task.cancel()
        for outcome in await asyncio.gather(*left, return_exceptions=True):
            if isinstance(outcome, Exception):
                self._break(outcome)

    def _break(self, error: Exception) -> None:
        """Nothing more can be sent: the target is gone, the trace is broken, or a bug."""
        self._broken = self._broken or error
        self._stop.set()

    def _judge_end(self) -> None:
        """A run that broke is worth its records, if there are any; a bug is worth nothing."""
        if self._broken is None:
            return
        if not isinstance(self._broken, EngineError) or not self._e2e:
            raise self._broken
        self.result.stopped_by = str(self._broken)

    # --- sending ------------------------------------------------------------------------

    def _outgoing(self, workload: Workload, target: Target) -> Turns:
        """Requests as they will be sent, made before they are due."""
        prompts = target.prompts(self._spec.words_seed, self._spec.shared_prefix)
        for planned in workload:
            prompt = prompts.make(planned.number, planned.prompt)
            outgoing = Outgoing(prompt, planned.output, self._spec.ignore_eos)
            yield planned, target.prepare(outgoing)

    async def _send(self, turns: Turns) -> None:
        """The open loop."""
        start, seconds = self.result.start, self._spec.seconds
        for planned, prepared in turns:
            due = start + (planned.at_ns or 0)
            await _sleep_until(due)  # lets the others run, even when it is late
            self.result.issued_until = due
            self._launch(self._serve(planned, prepared, due))
            await asyncio.sleep(0)  # it is sent before the next one is made
        if seconds is not None and self._sent != self._spec.requests:
            self.result.issued_until = start + int(seconds * 1e9)
            await _sleep_until(self.result.issued_until)

    async def _start_users(self, turns: Turns) -> None:
        """The closed loop: all users share one list of requests."""
        assert isinstance(self._spec.arrivals, Closed)
        for _ in range(self._spec.arrivals.users):
            self._launch(self._user(turns))

    async def _user(self, turns: Turns) -> None:
        spec, arrivals = self._spec, self._spec.arrivals
        assert isinstance(arrivals, Closed)
        end = math.inf if spec.seconds is None else self.result.start + spec.seconds * 1e9
        for planned, prepared in turns:
            await _sleep_until(now_ns() + arrivals.think_ns(spec.seed, planned.number))
            due = now_ns()
            if self._stop.is_set() or due >= end:
                return
            self.result.issued_until = due
            record = await self._serve(planned, prepared, due)
            if record.error == CLIENT_LIMIT:
                await asyncio.sleep(LIMIT_PAUSE_S)

    def _launch(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._open.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[object]) -> None:
        self._open.discard(task)
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, Exception):
                self._break(error)

    async def _serve(self, planned: Planned, prepared: Any, due: int) -> RequestRecord:
        """Send one request and wait for its answer; whatever comes goes into its record."""
        record = RequestRecord(planned.number, due, planned.prompt, planned.output, sent=now_ns())
        self._sent += 1
        try:
            async with asyncio.timeout(self._spec.timeout_s):
                await self._target.send(prepared, record)
        except Failed as failure:
            record.error, record.detail = failure.kind, failure.detail
        except TimeoutError:
            limit = self._spec.timeout_s
            record.error, record.detail = "timeout", f"not answered in full within {limit:g} s"
        except asyncio.CancelledError:
            record.finish_reason = INTERRUPTED
            raise
        except Exception as error:
            record.error, record.detail = NOT_SENT, str(error)
            self._break(error)
        finally:
            self._keep(record)
        return record

    def _keep(self, record: RequestRecord) -> None:
        record.ended = now_ns()
        self.result.records.append(record)
        self._failed += record.error is not None
        ttft, e2e = record.ttft_ms, record.e2e_ms
        if ttft is not None and e2e is not None:
            self._ttft.append(ttft)
            self._e2e.append(e2e)
        if self._on_record is not None:
            self._on_record(record, self.result.start)

    # --- watching -----------------------------------------------------------------------

    async def _heart(self) -> None:
        """Notes how late the loop is, and shows how far the run is."""
        beat = 0
        while True:
            due = now_ns() + int(HEARTBEAT_S * 1e9)
            await _sleep_until(due)
            self.result.loop_lag_ms.append((now_ns() - due) / 1e6)
            beat += 1
            if self._on_progress is not None and beat % BEATS_PER_PROGRESS == 0:
                self._on_progress(self._progress())

    def _progress(self) -> LoadProgress:
        elapsed = (now_ns() - self.result.start) / 1e9
        done = len(self.result.records)
        return LoadProgress(
            elapsed, self._sent, done, self._failed, self._spec.requests, self._ttft, self._e2e
        )


def run_load(
    target: Target,
    spec: LoadSpec,
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_record: Callable[[RequestRecord, int], None] | None = None,
) -> LoadResult:
    """Run a load to its end on an event loop of its own, in the calling thread.

    `on_progress(progress)` is called twice a second, `on_record(record, start)` as each request
    ends. An interrupt (Ctrl-C) ends the run and keeps its records; a second one is Python's own.
    Raises EngineError when the target cannot be used at all.
    """

    async def run() -> LoadResult:
        return await LoadRun(target, spec, on_progress, on_record).run()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


async def _sleep_until(moment: int) -> None:
    await asyncio.sleep(max(0.0, (moment - now_ns()) / 1e9))


def _primed(turns: Turns) -> Turns:
    """The same with the first one made already: the clock does not run for it."""
    first = list(itertools.islice(turns, 1))
    return itertools.chain(first, turns)


@contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C calls `stop`, where the loop runs in the main thread."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def once() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
    with suppress(NotImplementedError, RuntimeError):  # no such thing on this platform
        loop.add_signal_handler(signal.SIGINT, once)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
