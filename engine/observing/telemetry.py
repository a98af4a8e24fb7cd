"""What the engine remembers about itself, and how that becomes a Snapshot.

Written by the engine thread only. The normal path costs one row of numbers a step and one a
finished request; no text is made. Everything here has a fixed size.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.observing.clock import Clock, MachineClock
from engine.observing.meters import SERVED, Meters
from engine.observing.objectives import TIMED, Objective, count, limits
from engine.request import STAGES, FinishReason, Request
from engine.scheduling.plan import Plan
from engine.snapshot import (
    Event,
    Histogram,
    LatencyState,
    ObjectiveCount,
    Percentiles,
    StageShares,
    StepShares,
)

WINDOW_S = 60.0
"""Latencies and shares speak of so many recent seconds."""
RATE_WINDOW_S = 10.0
STEPS_KEPT = 4096
FINISHED_KEPT = 4096
GAPS_KEPT = 16384
EVENTS_KEPT = 200
EVENT_INTERVAL_S = 60.0
"""A repeating kind of anomaly is written once in this time, with its count."""

STEP_PARTS = (
    "plan", "draft", "build", "forward_prefill", "forward_decode", "verify",
    "sample", "apply", "telemetry",
)  # fmt: skip
"""`draft` is looking for drafts, `verify` their share of the forward pass."""
LATENCIES = ("queue_ms", "ttft_ms", "tpot_ms", "e2e_ms")
BOUNDS = ("queue", "cap", "kv", "token_budget", "batch")
"""What can limit a step, as the ring of steps numbers it."""
EDGES_MS = tuple(m * 10.0**e for e in range(6) for m in (1, 1.5, 2, 3, 5, 7))
"""Of histograms: six buckets a decade, 1 ms to 700 s."""


@dataclass(slots=True)
class StepRecord:
    """One step, in nanoseconds and tokens."""

    end: int = 0
    plan: int = 0
    build: int = 0
    forward: int = 0
    sample: int = 0
    apply: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    draft: int = 0
    """Of `plan`: looking for drafts."""
    drafts: int = 0
    draft_tokens: int = 0
    """In them, and of `decode_tokens`."""
    accepted_tokens: int = 0
    """Of the draft tokens, those that were right."""
    padding_tokens: int = 0
    """Computed for finished rows of a static batch."""
    sampled: int = 0
    running: int = 0
    waiting: int = 0
    bound_by: str = "queue"

    def count(self, plan: Plan) -> None:
        """Tokens by kind. A decode step computes one token, and its draft, and samples after
        output began."""
        for request, _, tokens, samples, padding, draft in plan.items:
            if padding:
                self.padding_tokens += tokens
            elif draft:
                self.decode_tokens += tokens
                self.drafts += 1
                self.draft_tokens += len(draft)
            elif samples and request.output_ids:
                self.decode_tokens += 1
                self.prefill_tokens += tokens - 1
            else:
                self.prefill_tokens += tokens

    @property
    def total_ms(self) -> float:
        return (self.plan + self.build + self.forward + self.sample + self.apply) / 1e6


class Ring:
    """The newest `size` rows of `width` numbers; a row's first number is its time in s."""

    def __init__(self, size: int, width: int) -> None:
        self._rows = np.full((size, width), np.nan)
        self._next = 0
        self.total = 0

    def append(self, row: tuple[float, ...], times: int = 1) -> None:
        self.total += times
        if times == 1:
            self._rows[self._next] = row
            self._next = (self._next + 1) % len(self._rows)
            return
        while times:
            end = min(self._next + times, len(self._rows))
            self._rows[self._next : end] = row
            times -= end - self._next
            self._next = end % len(self._rows)

    def since(self, start: float) -> np.ndarray:
        """Rows no older than `start`, the oldest first: times never fall from row to row."""
        older = self._rows[self._next :] if self.total >= len(self._rows) else self._rows[:0]
        parts = (older, self._rows[: self._next])
        return np.concatenate([p[np.searchsorted(p[:, 0], start) :] for p in parts])


@dataclass(frozen=True)
class Drafts:
    """What speculation did in some steps."""

    spent_ns: float
    sampled: float
    drafts: float
    drafted: float
    """Tokens in them."""
    accepted: float
    """Of `drafted`, and among `sampled`."""

    @property
    def ratio(self) -> float | None:
        """Of the tokens drafted, those that were right; None without drafts."""
        return self.accepted / self.drafted if self.drafted else None

    def gain(self, row_ns: float) -> float | None:
        """Tokens a second over what they would be without drafts, where a row costs `row_ns`;
        None without drafts."""
        without = self.spent_ns - self.drafted * row_ns
        if not self.drafted or without <= 0 or self.sampled <= self.accepted:
            return None
        return self.sampled / self.spent_ns * without / (self.sampled - self.accepted)


class Telemetry:
    """Of one Loop, in its clock's time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MachineClock()
        self.hold_to(())
        self.reset()

    def hold_to(self, objectives: Sequence[Objective]) -> None:
        """Count who meets them, from here on; all meters begin anew."""
        self._objectives = tuple(objectives)
        self.meters = Meters(limits(objectives), self._clock.unix())

    def reset(self) -> None:
        """Forget everything but the meters, which only grow."""
        self.started = self._clock.ns() / 1e9
        self.steps = Ring(STEPS_KEPT, 1 + len(STEP_PARTS) + 9)
        self.ended = Ring(FINISHED_KEPT, 1 + len(LATENCIES) + len(STAGES))
        self.gaps = Ring(GAPS_KEPT, 2)
        self.arrivals = Ring(FINISHED_KEPT, 1)
        self.finished: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._last_event: dict[str, tuple[float, int]] = {}
        self.kv_bytes = 0
        self.kv_tokens = 0
        """Summed over steps: memory that the cache held, and the tokens that it held them for."""
        self.busy_ns = 0
        """Time in steps."""
        self._cost_ns = 0

    # --- recording ------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        self.totals["requests"] += 1
        self.meters.totals["requests"] += 1
        self.arrivals.append((self._clock.ns() / 1e9,))

    def turned_away(self, count: int, why: str) -> None:
        """So many requests were refused before they came in."""
        rejected = FinishReason.REJECTED.value
        for totals in (self.totals, self.meters.totals):
            totals["requests"] += count
        for finished in (self.finished, self.meters.finished):
            finished[rejected] += count
        self.event("reject", f"{count} turned away: {why}", limit=True)

    def speculated(self, drafted: int, accepted: int) -> None:
        """One draft of so many tokens, the first `accepted` of them right."""
        for totals in (self.totals, self.meters.totals):
            totals["drafts"] += 1
            totals["draft_tokens"] += drafted
            totals["accepted_tokens"] += accepted
        self.meters.accepted_at.update(range(accepted))

    def preempted(self, request: Request) -> None:
        self.totals["preemptions"] += 1
        self.meters.totals["preemptions"] += 1
        self.event("preempt", f"preempted {request.id}")

    def step(self, record: StepRecord) -> None:
        start = self._clock.ns()
        tokens = max(record.prefill_tokens + record.decode_tokens, 1)
        prefill = record.forward * record.prefill_tokens // tokens
        verify = record.forward * record.draft_tokens // tokens
        parts = (
            record.plan - record.draft, record.draft, record.build,
            prefill, record.forward - prefill - verify, verify,
            record.sample, record.apply, self._cost_ns,
        )  # fmt: skip
        self.steps.append(
            (
                record.end / 1e9, *parts, record.prefill_tokens, record.decode_tokens,
                record.sampled, record.running, record.waiting,
                record.drafts, record.draft_tokens, record.accepted_tokens,
                BOUNDS.index(record.bound_by),
            )
        )  # fmt: skip
        self.busy_ns += sum(parts)
        self.totals["steps"] += 1
        self.totals["prefill_tokens"] += record.prefill_tokens
        self.totals["output_tokens"] += record.sampled
        self.totals["padding_tokens"] += record.padding_tokens
        self.meters.step(record.prefill_tokens + record.decode_tokens, record.sampled)
        self.totals[f"bound_{record.bound_by}"] += 1
        self._cost_ns = self._clock.ns() - start

    def token_gaps(self, now: int, gaps: list[int]) -> None:
        """Nanoseconds since their last one, of all requests that got a token now."""
        for gap, times in Counter(gaps).items():  # nearly all of them have waited for one step
            self.gaps.append((now / 1e9, gap / 1e6), times)
            self.meters.itl.add(gap / 1e9, times)

    def ended_with(self, request: Request, reason: FinishReason) -> None:
        self.finished[reason.value] += 1
        self.meters.ended(request, reason)
        if reason in SERVED:
            stamps = request.stamps
            values = (
                stamps.span_ms("queued", "first_scheduled"),
                stamps.span_ms("arrival", "first_token"),
                stamps.tpot_ms,
                stamps.span_ms("arrival", "last_token"),
            )
            row = (stamps.finished / 1e9, *values, *stamps.stages_ms)
            self.ended.append(tuple(np.nan if x is None else x for x in row))

    def event(self, kind: str, text: str, limit: bool = False) -> None:
        """Note an event; with `limit` a repeating kind is noted once a minute, counted."""
        now = self._clock.unix()
        last, missed = self._last_event.get(kind, (0.0, 0))
        if limit and now - last < EVENT_INTERVAL_S:
            self._last_event[kind] = (last, missed + 1)
            return
        self.events.append(Event(now, kind, text, missed + 1))
        self._last_event[kind] = (now, 0)

    # --- reading --------------------------------------------------------------------

    def objectives(self) -> tuple[ObjectiveCount, ...]:
        if not self._objectives:
            return ()
        meters = self.meters
        rows = {name: getattr(meters, name).read()[0] for name in TIMED}
        finished = {FinishReason.STOP.value: 0} | meters.finished  # none so far is known to be none
        return count(self._objectives, rows, finished, meters.since)

    def latency(self, now: float) -> LatencyState:
        rows = self.ended.since(now - WINDOW_S)
        gaps = self.gaps.since(now - WINDOW_S)
        return LatencyState(
            ttft_ms=percentiles(rows[:, 2]),
            tpot_ms=percentiles(rows[:, 3]),
            itl_ms=percentiles(gaps[:, 1]),
            e2e_ms=percentiles(rows[:, 4]),
            ttft_hist=histogram(rows[:, 2]),
            tpot_hist=histogram(rows[:, 3]),
            itl_hist=histogram(gaps[:, 1]),
            e2e_hist=histogram(rows[:, 4]),
        )

    def queue_wait(self, now: float) -> Percentiles:
        return percentiles(self.ended.since(now - WINDOW_S)[:, 1])

    def queue_histogram(self, now: float) -> Histogram | None:
        return histogram(self.ended.since(now - WINDOW_S)[:, 1])

    def bound_shares(self, now: float) -> dict[str, float] | None:
        """Share of the last minute's steps that each limit bound."""
        codes = self.steps.since(now - WINDOW_S)[:, -1].astype(np.int64)
        if not len(codes):
            return None
        counts = np.bincount(codes, minlength=len(BOUNDS)).tolist()
        return {name: n / len(codes) for name, n in zip(BOUNDS, counts, strict=True) if n}

    def stages(self, now: float) -> StageShares:
        times = np.nansum(self.ended.since(now - WINDOW_S)[:, 1 + len(LATENCIES) :], axis=0)
        total = times.sum()
        if not total > 0:
            return StageShares()
        return StageShares(*(float(x) for x in times / total))

    def step_shares(self, now: float) -> StepShares:
        times = np.nansum(self.steps.since(now - WINDOW_S)[:, 1 : 1 + len(STEP_PARTS)], axis=0)
        total = times.sum()
        if not total > 0:
            return StepShares()
        shares = dict(zip(STEP_PARTS, (times / total).tolist(), strict=True))
        if not shares["draft"] and not shares["verify"]:
            shares["draft"] = shares["verify"] = None
        return StepShares(**shares)

    def drafts(self, now: float) -> Drafts:
        """Of the last minute's steps."""
        rows = self.steps.since(now - WINDOW_S)
        first = 1 + len(STEP_PARTS)
        counts = [float(rows[:, first + n].sum()) for n in (2, 5, 6, 7)]
        return Drafts(float(rows[:, 1:first].sum()), *counts)

    def rate(self, ring: Ring, now: float) -> float:
        """Rows a second over the last seconds."""
        window = min(RATE_WINDOW_S, max(now - self.started, 1e-3))
        return len(ring.since(now - window)) / window

    def recent_steps(self, now: float) -> dict[str, float | None]:
        """Means over the last second's steps, and tokens a second over the rate window."""
        rows = self.steps.since(now - 1.0)
        first = 1 + len(STEP_PARTS)
        window = min(RATE_WINDOW_S, max(now - self.started, 1e-3))
        wide = self.steps.since(now - window)
        rates: dict[str, float | None] = {
            "prompt_tok_s": float(wide[:, first].sum() / window),
            "output_tok_s": float(wide[:, first + 2].sum() / window),
        }
        if not len(rows):
            return {"step_ms": None, "prefill_tokens": None, "decode_tokens": None} | rates
        return {
            "step_ms": float(rows[:, 1:first].sum(axis=1).mean() / 1e6),
            "prefill_tokens": float(rows[:, first].mean()),
            "decode_tokens": float(rows[:, first + 1].mean()),
        } | rates

    def bytes_read(self, weights: int) -> tuple[int, float]:
        """About what all steps so far have read: `weights` bytes each and the KV pages in use;
        and the seconds they took. Only differences of it say something."""
        return self.totals["steps"] * weights + self.kv_bytes, self.busy_ns / 1e9


def percentiles(values: np.ndarray) -> Percentiles:
    """From raw samples, NaN left out; no P99 below 100 samples, no P90 below 10."""
    values = values[~np.isnan(values)]
    n = len(values)
    if n == 0:
        return Percentiles()
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    return Percentiles(
        p50=float(p50),
        p90=float(p90) if n >= 10 else None,
        p99=float(p99) if n >= 100 else None,
        mean=float(values.mean()),
        n=n,
    )


def histogram(values: np.ndarray) -> Histogram | None:
    """Over EDGES_MS, NaN left out; None without samples. A sample on an edge is below it."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    places = np.searchsorted(EDGES_MS, values)
    counts = np.bincount(places, minlength=len(EDGES_MS) + 1)
    return Histogram(EDGES_MS, tuple(counts.tolist()))
