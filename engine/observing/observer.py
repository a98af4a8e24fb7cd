"""Builds a Snapshot of an engine, on the engine's thread."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from engine.observing import pageview
from engine.observing.ledger import take_ledger
from engine.observing.machine import MachineState, cores, machine
from engine.request import Request
from engine.scheduling.prefix import PrefixIndex
from engine.scheduling.scheduler import Scheduler
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

if TYPE_CHECKING:
    from engine.loop import Loop

EVENTS_SHOWN = 50
REQUESTS_SHOWN = 256
SATURATION_ALARM = 0.01
"""More clipped values than this and the calibration does not fit the work."""


def observe(loop: Loop, seq: int) -> Snapshot:
    now, telemetry = time.monotonic(), loop.telemetry
    _watch_saturation(loop)
    state = machine().read()
    return Snapshot(
        seq=seq,
        time=time.time(),
        engine=_info(loop, now),
        queue=_queue(loop, now),
        batch=_batch(loop, now),
        kv=_kv(loop),
        memory=_memory(loop, state),
        gpus=state.gpus,
        latency=telemetry.latency(now),
        stages=telemetry.stages(now),
        steps=telemetry.step_shares(now),
        finished=dict(telemetry.finished),
        events=tuple(telemetry.events)[-EVENTS_SHOWN:],
        ledger=take_ledger(loop).totals,
        requests=_requests(loop.scheduler, time.monotonic_ns()),
    )


def _watch_saturation(loop: Loop) -> None:
    clipped = loop.cache.saturation_ratio or 0.0
    if clipped > SATURATION_ALARM:
        loop.telemetry.event(
            "saturation",
            f"{clipped:.1%} of K and V values were clipped: the calibration does not fit this "
            "work; run `evewatch calibrate` on prompts like it, or use int8_channel",
            limit=True,
        )


def _info(loop: Loop, now: float) -> EngineInfo:
    backend = loop.backend
    return EngineInfo(
        model=loop.loaded.spec.name,
        device=loop.device,
        kernels=backend.name,
        note=None if backend.name != "reference" else backend.reason,
        policy=loop.config.policy,
        max_model_len=loop.scheduler.max_model_len,
        uptime_s=now - loop.telemetry.started,
        paused=loop.scheduler.paused,
        alarm=loop.watchdog.reason,
        draining=loop.draining,
    )


def _queue(loop: Loop, now: float) -> QueueState:
    telemetry, waiting = loop.telemetry, loop.scheduler.waiting
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


def _batch(loop: Loop, now: float) -> BatchState:
    recent, totals = loop.telemetry.recent_steps(now), loop.telemetry.totals
    return BatchState(
        running=len(loop.scheduler.running),
        cap=loop.scheduler.cap,
        cap_max=loop.config.max_batch,
        dynamic=loop.dynamic,
        step_ms=recent["step_ms"],
        prefill_tokens=recent["prefill_tokens"],
        decode_tokens=recent["decode_tokens"],
        bound_by=loop.bound_by,
        bound_shares=loop.telemetry.bound_shares(now),
        output_tok_s=recent["output_tok_s"],
        prompt_tok_s=recent["prompt_tok_s"],
        steps_total=totals["steps"],
        output_tokens_total=totals["output_tokens"],
        prompt_tokens_total=totals["prefill_tokens"],
        preemptions_total=totals["preemptions"],
        preemption_tax=loop.scheduler.preemption_tax,
        padding_tokens_total=totals["padding_tokens"],
        max_wait_ms=loop.max_wait_ms,
    )


def _kv(loop: Loop) -> KvState:
    pool, cache, layout = loop.scheduler.pool, loop.cache, loop.cache.layout
    shared = (pool.references - pool.used) * pool.page_tokens
    tokens = loop.scheduler.tokens_in_cache - shared
    fp16 = tokens * layout.fp16_bytes_per_token * len(cache.layers)
    shadow = loop.scheduler.shadow
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
        page_map=pageview.states(pool),
        pages_per_letter=pageview.stride_of(pool.total),
        tail_waste_tokens=places - tokens,
        fragmentation_ratio=(places - tokens) / places if places else 0.0,
        bytes_per_token=cache.bytes_per_token,
        sealed_ratio=layout.sealed_ratio,
        effective_ratio=cache.bytes_in_use(pool) / fp16 if fp16 else None,
        saturation_ratio=cache.saturation_ratio,
        pool_bytes=cache.bytes,
        largest_fit_tokens=min(pool.available * pool.page_tokens, loop.scheduler.max_model_len),
        shadow_largest_fit_tokens=min(shadow.largest_fit, loop.scheduler.max_model_len),
        shadow_fragmentation=shadow.fragmentation,
        prefix_hit_ratio=_hit_ratio(pool.index),
        evictions_total=pool.evictions,
        **_page_details(loop),
    )


def _page_details(loop: Loop) -> dict[str, Any]:
    """Owners, their names and ages of the pages and the shadow's map, while somebody looks."""
    if time.monotonic() >= loop.pages_until:
        return {}
    scheduler = loop.scheduler
    pool = scheduler.pool
    holders = [*scheduler.running.values(), *scheduler.policy.kept()]
    owners, names = loop.page_owners.map(pool.total, ((r.id, r.pages) for r in holders))
    return {
        "page_owners": owners,
        "owner_names": names,
        "page_ages": pageview.ages(pool, pool.now),
        "shadow_map": pageview.shadow(scheduler.shadow.runs(), pool.total, pool.page_tokens),
    }


def _memory(loop: Loop, state: MachineState) -> MemoryState:
    return MemoryState(
        rss_bytes=state.rss_bytes,
        available_bytes=state.available_bytes,
        cpu_percent=state.cpu_percent,
        cores=cores(),
        device_used_bytes=state.device_used_bytes,
        device_total_bytes=state.device_total_bytes,
        bandwidth_bytes_s=_bandwidth(loop),
        bandwidth_peak_bytes_s=loop.bandwidth_peak,
        allocators=(_kv_allocator(loop), *state.allocators),
    )


def _bandwidth(loop: Loop) -> float | None:
    """Bytes a second that steps have read since the last Snapshot; None without a step."""
    now = loop.telemetry.bytes_read(loop.loaded.model.weight_bytes)
    (before, then), loop.bytes_read = loop.bytes_read, now
    moved, seconds = now[0] - before, now[1] - then
    return moved / seconds if seconds > 0 and moved >= 0 else None


def _kv_allocator(loop: Loop) -> AllocatorState:
    """The pool: all of it, what requests and the prefix cache hold, and the tokens' own bytes."""
    pool, cache = loop.scheduler.pool, loop.cache
    cached = pool.cached * cache.layout.page_bytes * len(cache.layers)
    shared = (pool.references - pool.used) * pool.page_tokens
    tokens = loop.scheduler.tokens_in_cache - shared
    return AllocatorState(
        "KV pool",
        cache.bytes,
        cache.bytes_in_use(pool) + cached,
        int(tokens * cache.bytes_per_token) + cached,
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
        tokenize_ms=stamps.span_ms("tokenize_start", "tokenize_end"),
        detokenize_ms=stamps.detokenize_ns / 1e6,
        preemptions=request.preemptions,
    )
