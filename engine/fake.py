"""FakeEngine: an engine without a model, for tests and for `evewatch up --demo`.

The same surface as Engine, a scripted world behind it (engine/fakeworld.py), answers from a
canned text. No torch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.config import EngineConfig
from engine.errors import EngineError, EngineStopped, RequestError
from engine.fakeworld import ANSWER, DT, PAGE_TOKENS, Job, Script, World
from engine.request import FinishReason, SamplingParams
from engine.snapshot import (
    BatchState,
    EngineInfo,
    KvState,
    LatencyState,
    MemoryState,
    QueueState,
    RequestRow,
    Snapshot,
    Source,
    SourceState,
    StageShares,
    StepShares,
)
from engine.stream import Stream

PUBLISH_EVERY = 2
"""Ticks between Snapshots."""
MAX_CATCH_UP_S = 60.0
"""After a longer sleep of the machine the world does not live through what it missed."""
MAX_MODEL_LEN = 8192
BYTES_PER_TOKEN = 11_970
ROWS = 64


@dataclass(frozen=True)
class Failure:
    """From `after_s` on, the numbers no longer come. STALE: in silence."""

    after_s: float
    state: SourceState
    reason: str | None = None


SCRIPTS: dict[str, Script] = {
    "idle": Script(arrivals=0.0, warm_s=0.0),
    "typical": Script(),
    "full": Script(arrivals=6.0, pages=256, output=(96, 320)),
    "preempting": Script(arrivals=6.0, pages=96, output=(96, 320)),
    "stale": Script(),
    "dead": Script(),
}
FAILURES = {
    "stale": Failure(2.0, SourceState.STALE),
    "dead": Failure(2.0, SourceState.UNREACHABLE, "the engine thread ended: out of memory"),
}


class FakeEngine:
    """`script` is a name in SCRIPTS. With a `clock` (Unix seconds) of your own nothing moves
    until it does, and `snapshot` brings the world up to it; without one, a thread does.

    `start_error` is raised by start(), `load_s` is how long start() takes.
    """

    def __init__(
        self,
        script: str = "typical",
        *,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
        load_s: float = 0.0,
        start_error: EngineError | None = None,
    ) -> None:
        self.config = EngineConfig(model="fake", device="cpu", seed=seed)
        self._clock = clock or time.time
        self._own_pace = clock is None
        self._load_s, self._start_error = load_s, start_error
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._failure = FAILURES.get(script)
        self._began = self._clock()
        warm_ticks = round(SCRIPTS[script].warm_s / DT)
        self._world = World(SCRIPTS[script], seed, self._began - warm_ticks * DT)
        self._world_began = self._world.now
        for _ in range(warm_ticks):
            self._world.tick()
        self._seq = 0
        self._publish()

    # life

    def start(self) -> None:
        if self._load_s:
            self._stopped.wait(self._load_s)
        if self._start_error is not None:
            raise self._start_error
        if self._own_pace:
            threading.Thread(target=self._live, name="fake-engine", daemon=True).start()

    def _live(self) -> None:
        while not self._stopped.wait(DT):
            self.catch_up()

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
            for job in [*self._world.running, *self._world.waiting]:
                self._world.end(job, FinishReason.CANCELLED)

    def catch_up(self) -> None:
        """Live through what the clock says has passed."""
        with self._lock:
            if self._stopped.is_set():
                return
            now = self._clock()
            self._world.skip_to(now - MAX_CATCH_UP_S)
            self._run_to(now)

    def _run_to(self, now: float) -> None:
        # Half a tick of slack: a sum of tenths must not lose a tick to rounding.
        while self._world.now + DT <= now + DT / 2:
            self._world.tick()
            if self._world.ticks % PUBLISH_EVERY == 0 and not self._failing(self._world.now):
                self._publish()

    def _failing(self, now: float) -> bool:
        return self._failure is not None and now - self._began >= self._failure.after_s

    # the surface of Engine

    def snapshot(self) -> Snapshot:
        self.catch_up()
        with self._lock:
            failure, snapshot = self._failure, self._published
            if failure is None or failure.state is SourceState.STALE:
                return snapshot
            if not self._failing(self._clock()):
                return snapshot
            age = self._clock() - snapshot.time
            return replace(snapshot, source=Source(failure.state, age_s=age, reason=failure.reason))

    def submit(
        self,
        prompt: str | list[dict[str, str]] | list[int],
        params: SamplingParams,
        *,
        source: str = "console",
        timeout_s: float | None = None,
    ) -> Stream:
        tokens = _length(prompt)
        if tokens + params.max_tokens > MAX_MODEL_LEN:
            raise RequestError(
                f"prompt {tokens} + max_tokens {params.max_tokens} is more than the model's "
                f"{MAX_MODEL_LEN}; shorten one of them"
            )
        with self._lock:
            if self._stopped.is_set():
                raise EngineStopped("the engine has been stopped; nothing more is accepted")
            job = self._world.add(tokens, params.max_tokens, source, ANSWER)
            job.stream = Stream(job.id)
            return job.stream

    def cancel(self, request_id: str) -> None:
        with self._lock:
            job = self._world.find(request_id)
            if job is not None:
                self._world.end(job, FinishReason.CANCELLED)

    def set_cap(self, n: int) -> None:
        with self._lock:
            self._world.dynamic = False
            self._world.set_cap(n)
            self._publish()

    def set_paused(self, paused: bool) -> None:
        with self._lock:
            if paused != self._world.paused:
                self._world.paused = paused
                self._world.log("pause", f"admission {'paused' if paused else 'goes on'}")
            self._publish()

    # publishing

    def _publish(self) -> None:
        world = self._world
        self._seq += 1
        self._published = Snapshot(
            seq=self._seq,
            time=world.now,
            source=Source(engine="evewatch", target="fake"),
            engine=self._info(),
            queue=_queue(world),
            batch=_batch(world),
            kv=_kv(world),
            memory=_memory(world),
            latency=_latency(world),
            stages=_stages(world),
            steps=_steps(world),
            finished=dict(world.finished),
            events=tuple(world.events),
            requests=_rows(world),
        )

    def _info(self) -> EngineInfo:
        return EngineInfo(
            model="SmolLM2-135M",
            device="cpu",
            kernels="cpu",
            policy="continuous",
            max_model_len=MAX_MODEL_LEN,
            uptime_s=self._world.now - self._world_began,
            paused=self._world.paused,
        )


def _length(prompt: str | list[dict[str, str]] | list[int]) -> int:
    """Tokens, by the rule of thumb of four letters each; ids are counted."""
    if isinstance(prompt, str):
        return len(prompt) // 4 + 1
    return sum(len(item["content"]) // 4 + 5 if isinstance(item, dict) else 1 for item in prompt)


def _queue(world: World) -> QueueState:
    oldest = min((job.arrival for job in world.waiting), default=None)
    return QueueState(
        waiting=len(world.waiting),
        oldest_wait_s=0.0 if oldest is None else world.now - oldest,
        arrivals_per_s=world.per_second(world.arrived),
        finished_per_s=world.per_second(world.ended),
        wait_ms=world.percentiles(lambda done: done.wait),
        requests_total=world.total,
    )


def _batch(world: World) -> BatchState:
    step_s = world.tpot * 2.2 if world.running else None
    steps_per_tick = DT / step_s if step_s else 1.0
    return BatchState(
        running=len(world.running),
        cap=world.cap,
        cap_max=world.script.cap_max,
        dynamic=world.dynamic,
        step_ms=step_s * 1e3 if step_s else None,
        prefill_tokens=world.tick_prefill / steps_per_tick,
        decode_tokens=world.tick_decode / steps_per_tick,
        bound_by=world.bound_by,
        output_tok_s=world.tick_decode / DT,
        prompt_tok_s=world.tick_prefill / DT,
        steps_total=world.ticks,
        output_tokens_total=world.output_tokens,
        prompt_tokens_total=world.prompt_tokens,
        preemptions_total=world.preemptions,
    )


def _kv(world: World) -> KvState:
    page_map = "".join(world.states)
    total, used = len(page_map), page_map.count("o") + page_map.count("s")
    free = total - used
    places = used * PAGE_TOKENS
    waste = places - sum(min(job.computed, len(job.pages) * PAGE_TOKENS) for job in world.running)
    longest = world.largest_free_run()
    return KvState(
        format="int8_channel",
        page_tokens=PAGE_TOKENS,
        total=total,
        free=page_map.count("f"),
        open=page_map.count("o"),
        sealed=page_map.count("s"),
        cached=page_map.count("c"),
        usage=used / total,
        page_map=page_map,
        tail_waste_tokens=waste,
        fragmentation_ratio=waste / places if places else None,
        bytes_per_token=BYTES_PER_TOKEN,
        sealed_ratio=0.52,
        effective_ratio=0.52 * (1 + waste / places) if places else None,
        pool_bytes=total * PAGE_TOKENS * BYTES_PER_TOKEN,
        largest_fit_tokens=free * PAGE_TOKENS,
        shadow_largest_fit_tokens=longest * PAGE_TOKENS,
        shadow_fragmentation=1 - longest / free if free else None,
    )


def _memory(world: World) -> MemoryState:
    busy = 35.0 + 3.2 * len(world.running)
    return MemoryState(
        rss_bytes=640 * 2**20 + len(world.running) * 2**20,
        available_bytes=9 * 2**30 - len(world.running) * 2**20,
        cpu_percent=min(196.0, busy),
        cores=2,
    )


def _latency(world: World) -> LatencyState:
    tpot = world.percentiles(lambda done: done.tpot)
    return LatencyState(
        ttft_ms=world.percentiles(lambda done: done.ttft),
        tpot_ms=tpot,
        itl_ms=tpot,
        e2e_ms=world.percentiles(lambda done: done.e2e),
    )


def _stages(world: World) -> StageShares:
    whole = sum(done.e2e for done in world.done)
    if not whole:
        return StageShares()
    queue = sum(done.wait for done in world.done) / whole
    prefill = sum(done.ttft - done.wait for done in world.done) / whole
    rest = 1 - queue - prefill
    return StageShares(queue, 0.01 * rest, prefill, 0.96 * rest, 0.01 * rest, 0.02 * rest)


def _steps(world: World) -> StepShares:
    work = world.tick_prefill + 6 * world.tick_decode
    if not work:
        return StepShares()
    prefill = 0.92 * world.tick_prefill / work
    return StepShares(0.01, 0.02, prefill, 0.92 - prefill, 0.03, 0.01, 0.01)


def _rows(world: World) -> tuple[RequestRow, ...]:
    jobs = [(job, "running") for job in world.running]
    jobs += [(job, "preempted" if job.output else "waiting") for job in world.waiting]
    return tuple(_row(job, state, world.now) for job, state in jobs[:ROWS])


def _row(job: Job, state: str, now: float) -> RequestRow:
    scheduled, first = job.first_scheduled, job.first_token
    return RequestRow(
        id=job.id,
        state=state,
        position=job.computed,
        prompt_tokens=job.prompt,
        output_tokens=job.output,
        max_tokens=job.max_tokens,
        pages=len(job.pages),
        wait_ms=((now if scheduled is None else scheduled) - job.arrival) * 1e3,
        ttft_ms=None if first is None else (first - job.arrival) * 1e3,
        age_s=now - job.arrival,
        source=job.source,
    )
