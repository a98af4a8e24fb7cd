"""Meters: counts that only grow, for as long as the engine lives.

What a metrics endpoint exports: a reader elsewhere takes differences, so nothing here is ever
reset, and buckets are cumulative. Telemetry speaks of the recent window; this does not.
Written by the engine thread. A reader in another thread copies a histogram in one call, so its
buckets and its sum belong together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from engine.request import FinishReason, Request

TTFT_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0,
    40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
SERVED = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.KV_CAPACITY)


class Histogram:
    """Counts by upper edge (a value on an edge is below it), and their sum."""

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self._row = [0.0] * (len(edges) + 2)
        """Values in each bucket, above the last edge, and the sum of all values."""

    def add(self, value: float, times: int = 1) -> None:
        self._row[bisect_left(self.edges, value)] += times
        self._row[-1] += value * times

    def read(self) -> tuple[list[tuple[float, float]], float]:
        """((edge, values up to it) …, the last edge infinite) and the sum; from any thread."""
        *counts, total = self._row.copy()
        return list(zip((*self.edges, float("inf")), accumulate(counts), strict=True)), total


class Meters:
    """Seconds and tokens. `limits` are seconds by histogram (ttft, tpot, e2e): bounds of buckets,
    so that how many kept to them is exact here and for whoever reads the endpoint."""

    def __init__(self, limits: Mapping[str, float] | None = None, since: float = 0.0) -> None:
        self.limits, self.since = dict(limits or {}), since
        """`since`: Unix seconds."""
        self.totals: Counter[str] = Counter()
        """steps, prompt_tokens, output_tokens, preemptions, requests, drafts, draft_tokens,
        accepted_tokens"""
        self.accepted_at: Counter[int] = Counter()
        """Draft tokens that were right, by their place in the draft, from 0."""
        self.finished: Counter[str] = Counter()
        """Requests ended, by finish reason."""
        self.ttft, self.itl = self._latency("ttft", TTFT_S), Histogram(TOKEN_S)
        self.tpot, self.e2e = self._latency("tpot", TOKEN_S), self._latency("e2e", REQUEST_S)
        self.queue, self.prefill = Histogram(REQUEST_S), Histogram(REQUEST_S)
        self.decode, self.inference = Histogram(REQUEST_S), Histogram(REQUEST_S)
        self.prompt_tokens, self.output_tokens = Histogram(LENGTHS), Histogram(LENGTHS)
        self.max_tokens = Histogram(LENGTHS)
        self.step_tokens, self.preemptions = Histogram(STEP_TOKENS), Histogram(PREEMPTIONS)

    def _latency(self, name: str, edges: tuple[float, ...]) -> Histogram:
        limit = self.limits.get(name)
        return Histogram(edges if limit is None else tuple(sorted({*edges, limit})))

    def step(self, computed: int, sampled: int) -> None:
        self.totals["steps"] += 1
        self.totals["output_tokens"] += sampled
        self.step_tokens.add(computed)

    def first_token(self, request: Request, now: int) -> None:
        """At monotonic `now` (ns): its prompt has been computed."""
        self.totals["prompt_tokens"] += len(request.prompt_ids)
        self.ttft.add((now - request.stamps.arrival) / 1e9)

    def ended(self, request: Request, reason: FinishReason) -> None:
        """Only requests that were served enter the histograms."""
        self.finished[reason.value] += 1
        if reason not in SERVED:
            return
        stamps = request.stamps
        spans = (
            (self.e2e, "arrival", "last_token"),
            (self.queue, "queued", "first_scheduled"),
            (self.prefill, "first_scheduled", "first_token"),
            (self.decode, "first_token", "last_token"),
            (self.inference, "first_scheduled", "last_token"),
        )
        for meter, start, stop in spans:
            _add_ms(meter, stamps.span_ms(start, stop))
        _add_ms(self.tpot, stamps.tpot_ms)
        self.prompt_tokens.add(len(request.prompt_ids))
        self.output_tokens.add(len(request.output_ids))
        self.max_tokens.add(request.params.max_tokens)
        self.preemptions.add(request.preemptions)


def _add_ms(meter: Histogram, milliseconds: float | None) -> None:
    if milliseconds is not None:
        meter.add(milliseconds / 1e3)
