"""Numbers -> Snapshot: what the panels, gates and recordings read. Unknown stays None."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from engine.observing.objectives import Objective, count
from engine.remote.metrics.buckets import Buckets
from engine.remote.metrics.numbers import Numbers
from engine.snapshot import (
    BatchState,
    EngineInfo,
    Histogram,
    KvState,
    LatencyState,
    LengthState,
    MemoryState,
    ObjectiveCount,
    Percentiles,
    QueueState,
    Replica,
    Snapshot,
    StageShares,
    TokenCounts,
)

UNEVEN = 0.25
"""Ranks of one engine whose KV usage differs by more are named."""
KV_FULL = 0.95
"""Usage from which waiting requests are taken to wait for pages."""


def snapshot(
    numbers: Numbers, gauges: Mapping[str, float], info: EngineInfo, seq: int, time: float
) -> Snapshot:
    """Of one engine, or of several merged; `time` in Unix s. Its source is not set."""
    return Snapshot(
        seq=seq,
        time=time,
        engine=info,
        queue=queue(numbers),
        batch=batch(numbers, gauges),
        kv=kv(numbers, gauges),
        memory=memory(gauges),
        latency=latency(numbers),
        stages=stages(numbers),
        lengths=lengths(numbers),
        replicas=ranks(numbers),
        finished={reason: round(count) for reason, count in numbers.finished.items()},
    )


def queue(numbers: Numbers) -> QueueState:
    rates = numbers.rates
    ended = sum(numbers.finished.values()) if numbers.finished else None
    return QueueState(
        waiting=whole(numbers.waiting),
        arrivals_per_s=rates.get("arrivals"),
        finished_per_s=rates.get("finished"),
        wait_ms=percentiles(numbers.buckets.get("queue")),
        wait_hist=histogram(numbers.buckets.get("queue")),
        requests_total=whole(_plus(ended, numbers.running, numbers.waiting)),
    )


def batch(numbers: Numbers, gauges: Mapping[str, float]) -> BatchState:
    rates, totals = numbers.rates, numbers.totals
    step_s = gauges.get("step_s")
    return BatchState(
        running=whole(numbers.running),
        cap=whole(numbers.cap),
        cap_max=whole(numbers.cap_max if numbers.cap_max is not None else numbers.cap),
        step_ms=None if step_s is None else step_s * 1e3,
        prefill_tokens=_ratio(rates.get("prompt_tokens"), rates.get("steps")),
        decode_tokens=_ratio(rates.get("output_tokens"), rates.get("steps")),
        bound_by=_bound(numbers),
        output_tok_s=rates.get("output_tokens", gauges.get("output_tok_s")),
        prompt_tok_s=rates.get("prompt_tokens"),
        steps_total=whole(totals.get("steps")),
        output_tokens_total=whole(totals.get("output_tokens")),
        prompt_tokens_total=whole(totals.get("prompt_tokens")),
        preemptions_total=whole(totals.get("preemptions")),
        draft_accepted_ratio=_share(
            _ratio(totals.get("accepted_tokens"), totals.get("draft_tokens")),
            gauges.get("draft_ratio"),
        ),
        draft_tokens=_draft_tokens(totals, gauges),
    )


def _draft_tokens(totals: Mapping[str, float], gauges: Mapping[str, float]) -> float | None:
    """Accepted ones a draft; SGLang's length counts the token that comes without one, too."""
    length = gauges.get("draft_length")
    if length is not None and length >= 1.0:
        return length - 1.0
    return _ratio(totals.get("accepted_tokens"), totals.get("drafts"))


def kv(numbers: Numbers, gauges: Mapping[str, float]) -> KvState:
    totals = numbers.totals
    return KvState(
        format=numbers.pool_same(lambda pool: pool.format),
        page_tokens=whole(numbers.pool_same(lambda pool: pool.page_tokens)),
        total=whole(numbers.pool_sum(lambda pool: pool.pages)),
        free=whole(numbers.pool_sum(lambda pool: pool.free)),
        usage=numbers.usage,
        pool_bytes=whole(numbers.pool_sum(lambda pool: pool.bytes)),
        prefix_queried_total=whole(totals.get("cache_queries")),
        prefix_hits_total=whole(totals.get("cache_hits")),
        prefix_hit_ratio=_share(
            _ratio(totals.get("cache_hits"), totals.get("cache_queries")), gauges.get("hit_ratio")
        ),
    )


def memory(gauges: Mapping[str, float]) -> MemoryState:
    return MemoryState(
        rss_bytes=whole(gauges.get("rss_bytes")),
        device_used_bytes=whole(gauges.get("device_used_bytes")),
        device_total_bytes=whole(gauges.get("device_total_bytes")),
    )


def latency(numbers: Numbers) -> LatencyState:
    buckets = numbers.buckets
    return LatencyState(
        ttft_ms=percentiles(buckets.get("ttft")),
        tpot_ms=percentiles(buckets.get("tpot")),
        itl_ms=percentiles(buckets.get("itl")),
        e2e_ms=percentiles(buckets.get("e2e")),
        ttft_hist=histogram(buckets.get("ttft")),
        tpot_hist=histogram(buckets.get("tpot")),
        itl_hist=histogram(buckets.get("itl")),
        e2e_hist=histogram(buckets.get("e2e")),
    )


def stages(numbers: Numbers) -> StageShares:
    """Shares of the time of the requests that ended in the window, by their sums."""
    whole_time = _sum_of(numbers.buckets.get("e2e"))

    def share(name: str) -> float | None:
        ratio = _ratio(_sum_of(numbers.buckets.get(name)), whole_time)
        return None if ratio is None else min(1.0, ratio)

    return StageShares(queue=share("queue"), prefill=share("prefill"), decode=share("decode"))


def lengths(numbers: Numbers) -> LengthState:
    def of(name: str) -> TokenCounts | None:
        found = numbers.buckets.get(name)
        return None if found is None else found.token_counts()

    return LengthState(of("prompt_length"), of("output_length"), of("step_length"))


def objectives(
    numbers: Numbers, objectives: Iterable[Objective], since: float | None = None
) -> tuple[ObjectiveCount, ...]:
    """From what was counted over restarts. `since`: Unix s, of a count without a restart."""
    rows = {
        name: tuple(zip(one.bounds, one.counts, strict=True))
        for name, one in numbers.observed.items()
    }
    return count(objectives, rows, numbers.finished, since)


def ranks(numbers: Numbers) -> tuple[Replica, ...]:
    """The engines behind one address, where there are several."""
    if len(numbers.pools) < 2:
        return ()
    return tuple(
        Replica(pool.name, whole(pool.running), whole(pool.waiting), pool.usage)
        for pool in numbers.pools
    )


def note(broken: Sequence[str], numbers: Numbers) -> str | None:
    """What is wrong with single fields, and ranks that are far apart."""
    notes = list(broken[:2])
    silent = [pool.name for pool in numbers.pools if pool.usage is None]
    known = [pool for pool in numbers.pools if pool.usage is not None]
    if len(known) > 1:
        low = min(known, key=lambda pool: pool.usage or 0.0)
        high = max(known, key=lambda pool: pool.usage or 0.0)
        if (high.usage or 0.0) - (low.usage or 0.0) > UNEVEN:
            notes.append(
                f"KV usage is uneven: {high.name} {high.usage:.0%}, {low.name} {low.usage:.0%}"
            )
    if known and silent:
        told = ", ".join(f"{pool.name} {pool.usage:.0%}" for pool in known)
        notes.append(f"KV usage of {', '.join(silent)} is not known; {told}")
    return "; ".join(notes) or None


def percentiles(buckets: Buckets | None) -> Percentiles:
    return Percentiles() if buckets is None else buckets.percentiles_ms()


def histogram(buckets: Buckets | None) -> Histogram | None:
    if buckets is None or len(buckets.bounds) < 2:
        return None
    return Histogram(tuple(bound * 1e3 for bound in buckets.bounds[:-1]), buckets.apart)


def whole(value: float | None) -> int | None:
    return None if value is None or not math.isfinite(value) else round(value)


def _bound(numbers: Numbers) -> str | None:
    """Only what the gauges prove."""
    if numbers.waiting is None:
        return None
    if numbers.waiting == 0:
        return "queue"
    if numbers.usage is not None and numbers.usage >= KV_FULL:
        return "kv"
    if numbers.cap and numbers.running is not None and numbers.running >= numbers.cap:
        return "cap"
    return None


def _sum_of(buckets: Buckets | None) -> float | None:
    return None if buckets is None else buckets.sum


def _ratio(part: float | None, total: float | None) -> float | None:
    return part / total if part is not None and total else None


def _share(counted: float | None, gauge: float | None) -> float | None:
    """0–1: the engine's own gauge where its counters do not tell."""
    share = gauge if counted is None else counted
    return share if share is not None and 0 <= share <= 1 else None


def _plus(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
