"""What a scripted world looks like as a Snapshot. Constants stand for what it has not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import floor, log2
from string import ascii_letters, digits

from engine.simulated.fakeworld import DT, PAGE_TOKENS, Job, World
from engine.snapshot import (
    AllocatorState,
    BatchState,
    EngineInfo,
    KvState,
    LatencyState,
    MemoryState,
    QueueState,
    RequestRow,
    Snapshot,
    Source,
    StageShares,
    StepShares,
)

MAX_MODEL_LEN = 8192
BYTES_PER_TOKEN = 11_970
WEIGHT_BYTES = 96_000_000
PEAK_BYTES_S = 21.4e9
LETTERS = ascii_letters + digits
ROWS = 64


def snapshot_of(world: World, seq: int) -> Snapshot:
    return Snapshot(
        seq=seq,
        time=world.now,
        source=Source(engine="evewatch", target="fake"),
        engine=EngineInfo(
            model="SmolLM2-135M",
            device="cpu",
            kernels="cpu",
            policy="continuous",
            max_model_len=MAX_MODEL_LEN,
            uptime_s=world.ticks * DT,
            paused=world.paused,
            draining=world.draining,
        ),
        queue=_queue(world),
        batch=_batch(world),
        kv=_kv(world),
        memory=_memory(world),
        gpus=(),
        latency=_latency(world),
        stages=_stages(world),
        steps=_steps(world),
        finished=dict(world.finished),
        events=tuple(world.events),
        requests=_rows(world),
    )


def _queue(world: World) -> QueueState:
    oldest = min((job.arrival for job in world.waiting), default=None)
    return QueueState(
        waiting=len(world.waiting),
        oldest_wait_s=0.0 if oldest is None else world.now - oldest,
        arrivals_per_s=world.per_second(world.arrived),
        finished_per_s=world.per_second(world.ended),
        wait_ms=world.percentiles(lambda done: done.wait),
        wait_hist=world.histogram(lambda done: done.wait),
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
        bound_shares=_shares(world.bounds),
        output_tok_s=world.tick_decode / DT,
        prompt_tok_s=world.tick_prefill / DT,
        steps_total=world.ticks,
        output_tokens_total=world.output_tokens,
        prompt_tokens_total=world.prompt_tokens,
        preemptions_total=world.preemptions,
        max_wait_ms=world.max_wait_ms,
    )


def _kv(world: World) -> KvState:
    page_map = "".join(world.states)
    total, used = len(page_map), page_map.count("o") + page_map.count("s")
    free = total - used
    places = used * PAGE_TOKENS
    waste = places - sum(min(job.computed, len(job.pages) * PAGE_TOKENS) for job in world.running)
    longest = world.largest_free_run()
    owners, names = _owners(world)
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
        pages_per_letter=1,
        page_owners=owners,
        owner_names=names,
        page_ages=_ages(world),
        tail_waste_tokens=waste,
        fragmentation_ratio=waste / places if places else None,
        bytes_per_token=BYTES_PER_TOKEN,
        sealed_ratio=0.52,
        effective_ratio=0.52 * (1 + waste / places) if places else None,
        pool_bytes=total * PAGE_TOKENS * BYTES_PER_TOKEN,
        largest_fit_tokens=free * PAGE_TOKENS,
        shadow_largest_fit_tokens=longest * PAGE_TOKENS,
        shadow_fragmentation=1 - longest / free if free else None,
        shadow_map=page_map.replace("o", "s").replace("c", "f"),
    )


def _memory(world: World) -> MemoryState:
    busy = 35.0 + 3.2 * len(world.running)
    return MemoryState(
        rss_bytes=640 * 2**20 + len(world.running) * 2**20,
        available_bytes=9 * 2**30 - len(world.running) * 2**20,
        cpu_percent=min(196.0, busy),
        cores=2,
        bandwidth_bytes_s=_traffic(world),
        bandwidth_peak_bytes_s=PEAK_BYTES_S,
        allocators=(_pool_allocator(world), AllocatorState("C heap", 520 << 20, 470 << 20)),
    )


def _traffic(world: World) -> float | None:
    """Weights and pages in use, once a step."""
    if not world.running:
        return None
    held = sum(len(job.pages) for job in world.running) * PAGE_TOKENS * BYTES_PER_TOKEN
    return (WEIGHT_BYTES + held) / (world.tpot * 2.2)


def _pool_allocator(world: World) -> AllocatorState:
    page = PAGE_TOKENS * BYTES_PER_TOKEN
    held = len(world.states) - world.states.count("f")
    tokens = sum(job.computed for job in world.running) + len(world.cached) * PAGE_TOKENS
    active = min(tokens * BYTES_PER_TOKEN, held * page)
    return AllocatorState("KV pool", len(world.states) * page, held * page, active)


def _shares(bounds: Iterable[str]) -> dict[str, float] | None:
    counts = Counter(bounds)
    return {name: n / counts.total() for name, n in counts.items()} or None


def _owners(world: World) -> tuple[str, dict[str, str]]:
    """The letter goes with the number of the request, as far as there are letters."""
    letters = ["."] * len(world.states)
    names: dict[str, str] = {}
    for job in world.running:
        letter = LETTERS[int(job.id.removeprefix("r-")) % len(LETTERS)]
        letter = letter if letter not in names else "*"
        names.setdefault(letter, job.id)
        for page in job.pages:
            letters[page] = letter
    names.pop("*", None)
    return "".join(letters), names


def _ages(world: World) -> str:
    held = zip(world.states, world.born, strict=True)
    return "".join("." if s == "f" else _age(world.now - born) for s, born in held)


def _age(seconds: float) -> str:
    return str(min(9, floor(log2(max(seconds, 0.5))) + 1))


def _latency(world: World) -> LatencyState:
    tpot = world.percentiles(lambda done: done.tpot)
    return LatencyState(
        ttft_ms=world.percentiles(lambda done: done.ttft),
        tpot_ms=tpot,
        itl_ms=tpot,
        e2e_ms=world.percentiles(lambda done: done.e2e),
        ttft_hist=world.histogram(lambda done: done.ttft),
        tpot_hist=(tpot_hist := world.histogram(lambda done: done.tpot)),
        itl_hist=tpot_hist,
        e2e_hist=world.histogram(lambda done: done.e2e),
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
        tokenize_ms=0.8,
        detokenize_ms=0.02 * job.output,
        preemptions=job.preemptions,
    )
