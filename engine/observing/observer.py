"""Observer: what a Loop looks like from outside. Builds its Snapshots, on the loop's thread.

A fault in here ends no step: it is an event, and the last good Snapshot stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sized
from itertools import islice
from typing import Any, Protocol

from engine.config import EngineConfig
from engine.observing import pageview
from engine.observing.clock import Clock
from engine.observing.ledger import count_held
from engine.observing.machine import MachineState, cores, machine
from engine.observing.telemetry import Telemetry
from engine.observing.watchdog import Watchdog
from engine.request import Request
from engine.scheduling.controls import Controls
from engine.scheduling.plan import Compute
from engine.scheduling.prefix import PrefixIndex
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.speculation import Speculation
from engine.snapshot import (
    AllocatorState,
    BatchState,
    EngineInfo,
    KvState,
    MemoryState,
    QueueState,
    RequestRow,
    Snapshot,
)

log = logging.getLogger("evewatch.engine")

SNAPSHOT_INTERVAL_S = 0.25
EVENTS_SHOWN = 50
REQUESTS_SHOWN = 128
"""Rows of a Snapshot, those that run first: two microseconds of the loop each."""
SATURATION_ALARM = 0.01
"""More clipped values than this and the calibration does not fit the work."""


class Observed(Protocol):
    """What is looked at: a Loop."""

    scheduler: Scheduler
    compute: Compute
    clock: Clock
    config: EngineConfig
    telemetry: Telemetry
    controls: Controls
    bound_by: str | None
    speculation: Speculation | None

    @property
    def open(self) -> Mapping[str, Request]: ...

    @property
    def texts(self) -> Sized: ...


class Observer:
    """Holds what only observing needs. `machine`: what memory and GPUs look like now."""

    def __init__(
        self, loop: Observed, machine_state: Callable[[], MachineState] | None = None
    ) -> None:
        self._loop = loop
        self.machine_state = machine_state or machine().read
        self.watchdog = Watchdog(loop.config.stall_s)
        self.snapshot = Snapshot()
        """The latest one; from any thread."""
        self.wanted = False
        """Somebody has taken it: a newer one is worth building. Set from any thread."""
        self.bandwidth_peak: float | None = None
        """Bytes a second that reading memory reaches, once it has been measured."""
        self._cores = cores()
        self._due = 0
        self._pages_until = 0.0
        self._owners = pageview.Owners()
        self._bytes_read = (0, 0.0)
        """What telemetry said at the last Snapshot."""
        self.publish()

    # --- from the loop ----------------------------------------------------------------

    def watch(self, computed: int, now: int) -> None:
        """A round at `now` (ns) computes for so many requests: has it stalled?"""
        try:
            if self.watchdog.look(self._loop.scheduler, computed, now):
                log.error("watchdog: %s", self.watchdog.reason)
                self._loop.telemetry.event("watchdog", self.watchdog.reason or "")
        except Exception as error:
            self._failed(error)

    def look(self) -> None:
        """A round is over: build the next Snapshot if one is wanted and due."""
        if self.wanted and self._loop.clock.ns() >= self._due:
            self.publish()

    def publish(self) -> None:
        """Build a Snapshot of now and make it the latest."""
        self.wanted = False
        self._due = self._loop.clock.ns() + int(SNAPSHOT_INTERVAL_S * 1e9)
        try:
            self.snapshot = self._build()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        text = f"observing failed: {type(error).__name__}: {error}"
        self._loop.telemetry.event("error", text, limit=True)
        log.debug("observing failed", exc_info=error)

    # --- from any thread ----------------------------------------------------------------

    def watch_pages(self, seconds: float) -> None:
        """Snapshots of the next seconds say whose each page is and how old."""
        self._pages_until = self._loop.clock.ns() / 1e9 + seconds

    # --- what a Snapshot says -------------------------------------------------------------

    def _build(self) -> Snapshot:
        loop, telemetry = self._loop, self._loop.telemetry
        ns = loop.clock.ns()
        now = ns / 1e9
        self._watch_saturation()
        state = self.machine_state()
        return Snapshot(
            seq=self.snapshot.seq + 1,
            time=loop.clock.unix(),
            engine=self._info(now),
            queue=self._queue(now),
            batch=self._batch(now),
            kv=self._kv(now),
            memory=self._memory(state),
            gpus=state.gpus,
            latency=telemetry.latency(now),
            stages=telemetry.stages(now),
            steps=telemetry.step_shares(now),
            finished=dict(telemetry.finished),
            objectives=telemetry.objectives(),
            events=tuple(telemetry.events)[-EVENTS_SHOWN:],
            ledger=count_held(len(loop.open), len(loop.texts), loop.scheduler),
            requests=_requests(loop.scheduler, ns),
        )

    def _watch_saturation(self) -> None:
        clipped = self._loop.compute.saturation_ratio or 0.0
        if clipped > SATURATION_ALARM:
            self._loop.telemetry.event(
                "saturation",
                f"{clipped:.1%} of K and V values were clipped: the calibration does not fit this "
                "work; run `evewatch model calibrate` on prompts like it, or use int8_channel",
                limit=True,
            )

    def _info(self, now: float) -> EngineInfo:
        loop, facts = self._loop, self._loop.compute.facts
        return EngineInfo(
            model=facts.model,
            device=facts.device,
            kernels=facts.kernels,
            compute=facts.compute,
            note=facts.note,
            policy=loop.config.policy,
            max_model_len=loop.scheduler.max_model_len,
            uptime_s=now - loop.telemetry.started,
            paused=loop.scheduler.paused,
            alarm=self.watchdog.reason,
            draining=loop.controls.draining,
        )

    def _queue(self, now: float) -> QueueState:
        telemetry, waiting = self._loop.telemetry, self._loop.scheduler.waiting
        oldest = waiting.oldest_arrival()
        return QueueState(
            waiting=len(waiting),
            oldest_wait_s=now - oldest / 1e9 if oldest is not None else 0.0,
            arrivals_per_s=telemetry.rate(telemetry.arrivals, now),
            finished_per_s=telemetry.rate(telemetry.ended, now),
            wait_ms=telemetry.queue_wait(now),
            wait_hist=telemetry.queue_histogram(now),
            requests_total=telemetry.totals["requests"],
        )

    def _batch(self, now: float) -> BatchState:
        loop, telemetry = self._loop, self._loop.telemetry
        recent, totals = telemetry.recent_steps(now), telemetry.totals
        lengths = loop.scheduler.lengths
        return BatchState(
            running=len(loop.scheduler.running),
            cap=loop.scheduler.cap,
            cap_max=loop.config.max_batch,
            dynamic=loop.controls.dynamic,
            step_ms=recent["step_ms"],
            prefill_tokens=recent["prefill_tokens"],
            decode_tokens=recent["decode_tokens"],
            bound_by=loop.bound_by,
            bound_shares=telemetry.bound_shares(now),
            output_tok_s=recent["output_tok_s"],
            prompt_tok_s=recent["prompt_tok_s"],
            steps_total=totals["steps"],
            output_tokens_total=totals["output_tokens"],
            prompt_tokens_total=totals["prefill_tokens"],
            preemptions_total=totals["preemptions"],
            preemption_tax=loop.scheduler.preemption_tax,
            predicting=lengths.hold if lengths is not None else None,
            length_coverage=lengths.coverage if lengths is not None else None,
            **self._drafts(now),
            padding_tokens_total=totals["padding_tokens"],
            max_wait_ms=loop.controls.max_wait_ms,
        )

    def _drafts(self, now: float) -> dict[str, float | None]:
        """Of the last minute; None without drafts in it."""
        speculation = self._loop.speculation
        if speculation is None:
            return {}
        found = self._loop.telemetry.drafts(now)
        if not found.drafted:
            return {}
        return {
            "draft_accepted_ratio": found.ratio,
            "draft_tokens": found.accepted / found.drafts,
            "draft_gain": found.gain(speculation.times.row),
        }

    def _kv(self, now: float) -> KvState:
        scheduler, compute = self._loop.scheduler, self._loop.compute
        pool, shadow, kv = scheduler.pool, scheduler.shadow, compute.facts.kv
        tokens = _distinct_tokens(scheduler)
        fp16 = tokens * kv.fp16_bytes_per_token
        places, longest = pool.used * pool.page_tokens, scheduler.max_model_len
        return KvState(
            format=kv.format,
            page_tokens=pool.page_tokens,
            total=pool.total,
            free=pool.free,
            open=pool.open,
            sealed=pool.sealed,
            cached=pool.cached,
            usage=pool.used / pool.total,
            page_map=pageview.states(pool),
            pages_per_letter=pageview.stride_of(pool.total),
            tail_waste_tokens=places - tokens,
            fragmentation_ratio=(places - tokens) / places if places else 0.0,
            bytes_per_token=kv.bytes_per_token,
            sealed_ratio=kv.sealed_ratio,
            effective_ratio=kv.in_use(pool) / fp16 if fp16 else None,
            saturation_ratio=compute.saturation_ratio,
            pool_bytes=kv.pool_bytes,
            largest_fit_tokens=min(pool.available * pool.page_tokens, longest),
            shadow_largest_fit_tokens=min(shadow.largest_fit, longest),
            shadow_fragmentation=shadow.fragmentation,
            **_prefix(pool.index),
            evictions_total=pool.evictions,
            **(self._page_details() if now < self._pages_until else {}),
        )

    def _page_details(self) -> dict[str, Any]:
        """Owners, their names and ages of the pages and the shadow's map: somebody looks."""
        scheduler = self._loop.scheduler
        pool = scheduler.pool
        tables = ((r.id, r.pages) for r in scheduler.holders())
        owners, names = self._owners.map(pool.total, tables)
        return {
            "page_owners": owners,
            "owner_names": names,
            "page_ages": pageview.ages(pool, pool.now),
            "shadow_map": pageview.shadow(scheduler.shadow.runs(), pool.total, pool.page_tokens),
        }

    def _memory(self, state: MachineState) -> MemoryState:
        return MemoryState(
            rss_bytes=state.rss_bytes,
            available_bytes=state.available_bytes,
            cpu_percent=state.cpu_percent,
            cores=self._cores,
            device_used_bytes=state.device_used_bytes,
            device_total_bytes=state.device_total_bytes,
            bandwidth_bytes_s=self._bandwidth(),
            bandwidth_peak_bytes_s=self.bandwidth_peak,
            allocators=(self._kv_allocator(), *state.allocators),
        )

    def _bandwidth(self) -> float | None:
        """Bytes a second that steps have read since the last Snapshot; None without a step."""
        now = self._loop.telemetry.bytes_read(self._loop.compute.facts.weight_bytes)
        (before, then), self._bytes_read = self._bytes_read, now
        moved, seconds = now[0] - before, now[1] - then
        return moved / seconds if seconds > 0 and moved >= 0 else None

    def _kv_allocator(self) -> AllocatorState:
        """All of the pool, what requests and the prefix cache hold, and the tokens' own bytes."""
        scheduler, kv = self._loop.scheduler, self._loop.compute.facts.kv
        cached = scheduler.pool.cached * kv.page_bytes
        tokens = int(_distinct_tokens(scheduler) * kv.bytes_per_token)
        held = kv.in_use(scheduler.pool) + cached
        return AllocatorState("KV pool", kv.pool_bytes, held, tokens + cached)


def _distinct_tokens(scheduler: Scheduler) -> int:
    """In the cache; those of a shared page count once."""
    pool = scheduler.pool
    return scheduler.tokens_in_cache - (pool.references - pool.used) * pool.page_tokens


def _prefix(index: PrefixIndex | None) -> dict[str, Any]:
    if index is None:
        return {}
    queried, hits = index.queried_tokens, index.hit_tokens
    return {
        "prefix_queried_total": queried,
        "prefix_hits_total": hits,
        "prefix_hit_ratio": hits / queried if queried else None,
    }


def _requests(scheduler: Scheduler, now: int) -> tuple[RequestRow, ...]:
    return tuple(_row(request, now) for request in islice(scheduler.requests(), REQUESTS_SHOWN))


def _row(request: Request, now: int) -> RequestRow:
    stamps, params = request.stamps, request.params
    first = stamps.first_token
    return RequestRow(
        id=request.id,
        state=request.status.value,
        position=request.num_computed,
        prompt_tokens=len(request.prompt_ids),
        output_tokens=len(request.output_ids),
        max_tokens=params.max_tokens,
        pages=len(request.pages),
        wait_ms=((stamps.first_scheduled or now) - stamps.queued) / 1e6,
        ttft_ms=(first - stamps.arrival) / 1e6 if first else None,
        age_s=(now - stamps.arrival) / 1e9,
        source=request.source,
        tokenize_ms=(ends - stamps.tokenize_start) / 1e6 if (ends := stamps.tokenize_end) else None,
        detokenize_ms=stamps.detokenize_ns / 1e6,
        preemptions=request.preemptions,
        draft_tokens=request.drafted or None,
        accepted_tokens=request.accepted if request.drafted else None,
    )
