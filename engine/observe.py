"""Builds a Snapshot of an engine, on the engine's thread."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

import psutil

from engine.ledger import take_ledger
from engine.prefix import PrefixIndex
from engine.request import Request
from engine.scheduler import Scheduler
from engine.snapshot import (
    BatchState,
    EngineInfo,
    KvState,
    MemoryState,
    QueueState,
    RequestRow,
    Snapshot,
)

if TYPE_CHECKING:
    from engine.stepper import Stepper

EVENTS_SHOWN = 50
REQUESTS_SHOWN = 256
SATURATION_ALARM = 0.01
"""More clipped values than this and the calibration does not fit the work."""


def observe(stepper: Stepper, seq: int) -> Snapshot:
    now, telemetry = time.monotonic(), stepper.telemetry
    _watch_saturation(stepper)
    return Snapshot(
        seq=seq,
        time=time.time(),
        engine=_info(stepper, now),
        queue=_queue(stepper, now),
        batch=_batch(stepper, now),
        kv=_kv(stepper),
        memory=MemoryState(
            rss_bytes=telemetry.rss(),
            available_bytes=psutil.virtual_memory().available,
            cpu_percent=telemetry.cpu_percent(),
            cores=telemetry.cores(),
        ),
        latency=telemetry.latency(now),
        stages=telemetry.stages(now),
        steps=telemetry.step_shares(now),
        finished=dict(telemetry.finished),
        events=tuple(telemetry.events)[-EVENTS_SHOWN:],
        ledger=take_ledger(stepper).totals,
        requests=_requests(stepper.scheduler, time.monotonic_ns()),
    )


def _watch_saturation(stepper: Stepper) -> None:
    clipped = stepper.cache.saturation_ratio or 0.0
    if clipped > SATURATION_ALARM:
        stepper.telemetry.event(
            "saturation",
            f"{clipped:.1%} of K and V values were clipped: the calibration does not fit this "
            "work; run `evewatch calibrate` on prompts like it, or use int8_channel",
            limit=True,
        )


def _info(stepper: Stepper, now: float) -> EngineInfo:
    backend = stepper.backend
    return EngineInfo(
        model=stepper.loaded.spec.name,
        device=stepper.device,
        kernels=backend.name,
        note=None if backend.name != "reference" else backend.reason,
        policy=stepper.config.policy,
        max_model_len=stepper.scheduler.max_model_len,
        uptime_s=now - stepper.telemetry.started,
        paused=stepper.scheduler.paused,
        alarm=stepper.watchdog.reason,
    )


def _queue(stepper: Stepper, now: float) -> QueueState:
    telemetry, waiting = stepper.telemetry, stepper.scheduler.waiting
    oldest = waiting.oldest_arrival()
    return QueueState(
        waiting=len(waiting),
        oldest_wait_s=now - oldest / 1e9 if oldest is not None else 0.0,
        arrivals_per_s=telemetry.rate(telemetry.arrivals, now),
        finished_per_s=telemetry.rate(telemetry.ended, now),
        wait_ms=telemetry.queue_wait(now),
        requests_total=telemetry.totals["requests"],
    )


def _batch(stepper: Stepper, now: float) -> BatchState:
    recent, totals = stepper.telemetry.recent_steps(now), stepper.telemetry.totals
    return BatchState(
        running=len(stepper.scheduler.running),
        cap=stepper.scheduler.cap,
        cap_max=stepper.config.max_batch,
        dynamic=stepper.dynamic,
        step_ms=recent["step_ms"],
        prefill_tokens=recent["prefill_tokens"],
        decode_tokens=recent["decode_tokens"],
        bound_by=stepper.bound_by,
        output_tok_s=recent["output_tok_s"],
        prompt_tok_s=recent["prompt_tok_s"],
        steps_total=totals["steps"],
        output_tokens_total=totals["output_tokens"],
        prompt_tokens_total=totals["prefill_tokens"],
        preemptions_total=totals["preemptions"],
        preemption_tax=stepper.scheduler.preemption_tax,
        padding_tokens_total=totals["padding_tokens"],
    )


def _kv(stepper: Stepper) -> KvState:
    pool, cache, layout = stepper.scheduler.pool, stepper.cache, stepper.cache.layout
    shared = (pool.references - pool.used) * pool.page_tokens
    tokens = stepper.scheduler.tokens_in_cache - shared
    fp16 = tokens * layout.fp16_bytes_per_token * len(cache.layers)
    shadow = stepper.scheduler.shadow
    places = pool.used * pool.page_tokens
    return KvState(
        format=layout.fmt.name,
        page_tokens=pool.page_tokens,
        total=pool.total,
        free=pool.free,
        open=pool.open,
        sealed=pool.sealed,
        cached=pool.cached,
        usage=pool.used / pool.total,
        page_map=pool.page_map(),
        tail_waste_tokens=places - tokens,
        fragmentation_ratio=(places - tokens) / places if places else 0.0,
        bytes_per_token=cache.bytes_per_token,
        sealed_ratio=layout.sealed_ratio,
        effective_ratio=cache.bytes_in_use(pool) / fp16 if fp16 else None,
        saturation_ratio=cache.saturation_ratio,
        pool_bytes=cache.bytes,
        largest_fit_tokens=min(pool.available * pool.page_tokens, stepper.scheduler.max_model_len),
        shadow_largest_fit_tokens=min(shadow.largest_fit, stepper.scheduler.max_model_len),
        shadow_fragmentation=shadow.fragmentation,
        prefix_hit_ratio=_hit_ratio(pool.index),
        evictions_total=pool.evictions,
    )


def _hit_ratio(index: PrefixIndex | None) -> float | None:
    if index is None or not index.queried_tokens:
        return None
    return index.hit_tokens / index.queried_tokens


def _requests(scheduler: Scheduler, now: int) -> tuple[RequestRow, ...]:
    return tuple(_row(request, now) for request in islice(scheduler.requests(), REQUESTS_SHOWN))


def _row(request: Request, now: int) -> RequestRow:
    stamps = request.stamps
    wait = stamps.span_ms("queued", "first_scheduled")
    return RequestRow(
        id=request.id,
        state=request.status.value,
        position=request.num_computed,
        prompt_tokens=len(request.prompt_ids),
        output_tokens=len(request.output_ids),
        max_tokens=request.params.max_tokens,
        pages=len(request.pages),
        wait_ms=wait if wait is not None else (now - stamps.queued) / 1e6,
        ttft_ms=stamps.span_ms("arrival", "first_token"),
        age_s=(now - stamps.arrival) / 1e9,
        source=request.source,
    )
