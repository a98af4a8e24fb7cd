"""Builds a Snapshot of an Engine, on the engine's thread."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

import psutil

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
    from engine.core import Engine

EVENTS_SHOWN = 50
REQUESTS_SHOWN = 256
SATURATION_ALARM = 0.01
"""More clipped values than this and the calibration does not fit the work."""


def observe(engine: Engine, seq: int, bound_by: str | None) -> Snapshot:
    now, telemetry = time.monotonic(), engine.telemetry
    _watch_saturation(engine)
    return Snapshot(
        seq=seq,
        time=time.time(),
        engine=_info(engine, now),
        queue=_queue(engine, now),
        batch=_batch(engine, now, bound_by),
        kv=_kv(engine),
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
        requests=_requests(engine.scheduler, time.monotonic_ns()),
    )


def _watch_saturation(engine: Engine) -> None:
    clipped = engine.cache.saturation_ratio or 0.0
    if clipped > SATURATION_ALARM:
        engine.telemetry.event(
            "saturation",
            f"{clipped:.1%} of K and V values were clipped: the calibration does not fit this "
            "work; run `evewatch calibrate` on prompts like it, or use int8_channel",
            limit=True,
        )


def _info(engine: Engine, now: float) -> EngineInfo:
    backend = engine.backend
    return EngineInfo(
        model=engine.loaded.spec.name,
        device=engine.device,
        kernels=backend.name,
        note=None if backend.name != "reference" else backend.reason,
        policy=engine.config.policy,
        max_model_len=engine.scheduler.max_model_len,
        uptime_s=now - engine.telemetry.started,
        paused=engine.scheduler.paused,
    )


def _queue(engine: Engine, now: float) -> QueueState:
    telemetry, waiting = engine.telemetry, engine.scheduler.waiting
    oldest = waiting.oldest_arrival()
    return QueueState(
        waiting=len(waiting),
        oldest_wait_s=now - oldest / 1e9 if oldest is not None else 0.0,
        arrivals_per_s=telemetry.rate(telemetry.arrivals, now),
        finished_per_s=telemetry.rate(telemetry.ended, now),
        wait_ms=telemetry.queue_wait(now),
        requests_total=telemetry.totals["requests"],
    )


def _batch(engine: Engine, now: float, bound_by: str | None) -> BatchState:
    recent, totals = engine.telemetry.recent_steps(now), engine.telemetry.totals
    return BatchState(
        running=len(engine.scheduler.running),
        cap=engine.scheduler.cap,
        cap_max=engine.config.max_batch,
        dynamic=False,
        step_ms=recent["step_ms"],
        prefill_tokens=recent["prefill_tokens"],
        decode_tokens=recent["decode_tokens"],
        bound_by=bound_by,
        output_tok_s=recent["output_tok_s"],
        prompt_tok_s=recent["prompt_tok_s"],
        steps_total=totals["steps"],
        output_tokens_total=totals["output_tokens"],
        prompt_tokens_total=totals["prefill_tokens"],
        preemptions_total=totals["preemptions"],
    )


def _kv(engine: Engine) -> KvState:
    pool, cache, layout = engine.pool, engine.cache, engine.cache.layout
    tokens = engine.scheduler.tokens_in_cache
    fp16 = tokens * layout.fp16_bytes_per_token * len(cache.layers)
    shadow = engine.scheduler.shadow
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
        largest_fit_tokens=min(pool.available * pool.page_tokens, engine.scheduler.max_model_len),
        shadow_largest_fit_tokens=min(shadow.largest_fit, engine.scheduler.max_model_len),
        shadow_fragmentation=shadow.fragmentation,
    )


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
