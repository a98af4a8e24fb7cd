"""Evidence: what a run found out about an engine, in one value. No torch, nothing measured here.

A field that is None was not measured, and nothing is concluded from it. An empty tuple was
looked at and is clean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from engine.observing.host import HostEvidence
from engine.snapshot import Snapshot
from playbooks.diagnosis.seen import Broken, Restarts, Tail, Usual
from playbooks.statistics.knee import DOUBLING_GAIN

KNEE_MOST = 4096
LIMITED_SHARES = {
    "kv": "kv_limited_share",
    "cap": "batch_limited_share",
    "token_budget": "token_limited_share",
}


@dataclass(frozen=True)
class StepCurve:
    """What a decode step costs by its rows: a robust line through many of them."""

    fixed_ms: float
    per_row_ms: float
    points: tuple[tuple[int, float], ...] = ()
    """Rows, and the fewest milliseconds that were measured for them."""

    def ms(self, rows: float) -> float:
        return self.fixed_ms + self.per_row_ms * rows

    def doubling_gain(self, rows: float) -> float:
        """More tokens a second from twice the rows."""
        return 2 * self.ms(rows) / self.ms(2 * rows) - 1

    @property
    def knee(self) -> int:
        """The last batch whose doubling still gains DOUBLING_GAIN: from the line, solved."""
        if self.per_row_ms <= 0:
            return KNEE_MOST
        rows = self.fixed_ms * (1 - DOUBLING_GAIN) / (2 * DOUBLING_GAIN * self.per_row_ms)
        return min(max(int(rows), 1), KNEE_MOST)


@dataclass(frozen=True)
class Growth:
    """Something that grew while requests came and went."""

    what: str
    """Class of resource, path of a container, or class of object."""
    kind: str
    """ledger | container | object | memory"""
    per_request: float
    low: float | None = None
    """Lower end of the slope's interval."""

    def __str__(self) -> str:
        if not self.per_request:
            return self.what
        unit = " bytes" if self.kind == "memory" else ""
        return f"{self.what} {self.per_request:+,.3g}{unit} per request"


@dataclass(frozen=True)
class Evidence:
    """Shares are 0–1, times milliseconds. Who fills what: see playbooks/steps/metrics.py."""

    # --- a load -------------------------------------------------------------------------
    requests: int | None = None
    error_rate: float | None = None
    mean_running: float | None = None
    """Rows of a step, weighted by its time: what a request sees."""
    waiting_share: float | None = None
    """Of the steps, those that left somebody waiting."""
    kv_limited_share: float | None = None
    """Of the steps, those in which the KV cache had no room for who waited."""
    batch_limited_share: float | None = None
    """The same for the batch's size."""
    token_limited_share: float | None = None
    """The same for the step's tokens."""
    busy_share: float | None = None
    """Of the time, steps."""
    token_gain: float | None = None
    """More tokens a second from steps of twice as many tokens."""
    token_budget: int | None = None
    tpot_ms: float | None = None
    """Median over requests."""
    tpot_objective_ms: float | None = None
    """None: nobody stated one."""
    queue_share: float | None = None
    """Of the requests' time, waiting to be scheduled."""
    tokenize_share: float | None = None
    """Of a request's time, waiting for a tokenizer and being tokenized; the middle one's of a
    load, all requests' together where only they are known."""
    decode_share: float | None = None
    logging_share: float | None = None
    """Of the steps' time, writing log lines."""
    log_lines_per_request: float | None = None
    preemption_tax: float | None = None
    """Tokens computed again over useful ones."""
    draft_accepted_ratio: float | None = None
    """Of the tokens that speculation drafted, those that were right; None without drafts."""
    draft_gain: float | None = None
    """Tokens a second over what they would be without drafts."""
    kv_usage: float | None = None
    """Of the pages, those held; mean over the steps that had no room, or over all."""
    kv_waste: float | None = None
    """Of the token places held, those without a token; the same mean."""
    prefix_expected: float | None = None
    """Of the prompt tokens, those that the prefix cache should have had; 0: nothing is shared."""
    prefix_hit_ratio: float | None = None
    generator_late_ms: float | None = None
    """How late the load generator was, beyond what is tolerable; 0: in time."""
    # --- step times by rows -----------------------------------------------------------------
    curve: StepCurve | None = None
    # --- before and after -------------------------------------------------------------------
    growth: tuple[Growth, ...] | None = None
    # --- what the model says ------------------------------------------------------------
    mean_kld: float | None = None
    """Against fp16 KV, in nats."""
    kld_limit: float = 0.01
    suspects: tuple[str, ...] | None = None
    """K channels that stand out, the worst first."""
    clipped: float | None = None
    """Share of K and V that static scales clipped; 0 where there are no static scales."""
    mixed_answers: int | None = None
    """Answers with another client's mark, or otherwise not what the client gets alone."""
    # --- around the engine -----------------------------------------------------------------
    host: HostEvidence | None = None
    """What the machine did to the engine's process during a load."""
    broken_versions: tuple[str, ...] | None = None
    engine: str | None = None
    """As adapters name it: vllm. None: the embedded one, or nobody knows."""
    # --- what any client sees -----------------------------------------------------------
    tail: Tail | None = None
    restarts: Restarts | None = None
    broken: Broken | None = None
    refused_share: float | None = None
    """Of the requests, those that failed, broken streams not counted."""
    lengths: tuple[str, ...] | None = None
    """In which way answers or prompts had another length than was asked for."""
    at_once_share: float | None = None
    """Of the streamed answers with a course, those whose pieces all came at their end."""
    repeats: float | None = None
    """Of the greedy answers to a request alone, those that come again word for word."""
    emptied: int | None = None
    """Greedy answers without text to requests that had one at another time."""
    inconsistent: tuple[str, ...] | None = None
    """In which of its counters the target disagrees with what its clients got."""
    odd_replicas: tuple[str, ...] | None = None
    """Of a group, those unlike the others, and in what."""
    usual: Usual | None = None
    """None: there is no healthy run to be held against."""

    @property
    def doubling_gain(self) -> float | None:
        """More tokens a second from twice as many rows as ran."""
        if self.curve is None or not self.mean_running:
            return None
        return self.curve.doubling_gain(max(self.mean_running, 1.0))

    def having(self, facts: Mapping[str, Any]) -> Evidence:
        """With these facts too; a fact that is None changes nothing."""
        known = {f.name for f in fields(self)}
        return replace(self, **{k: v for k, v in facts.items() if k in known and v is not None})


FACTS = tuple(f.name for f in fields(Evidence) if f.name not in ("kld_limit",))


def from_snapshots(series: Sequence[Snapshot]) -> dict[str, Any]:
    """The facts that Snapshots of any engine give, taken while it is under load.

    What the engine does not report stays None. A series without a live Snapshot gives nothing.
    """
    live = [s for s in series if s.source.state == "live"]
    if not live:
        return {}
    limits = [s.batch.bound_by for s in live if s.batch.bound_by is not None]
    facts: dict[str, Any] = {
        name: limits.count(limit) / len(limits) if limits else None
        for limit, name in LIMITED_SHARES.items()
    }
    last = live[-1]
    return facts | {
        "mean_running": _mean([s.batch.running for s in live]),
        "waiting_share": _mean([None if s.queue.waiting is None else float(s.queue.waiting > 0)
                                for s in live]),
        "queue_share": last.stages.queue,
        "tokenize_share": last.stages.tokenize,
        "decode_share": last.stages.decode,
        "preemption_tax": last.batch.preemption_tax,
        "draft_accepted_ratio": last.batch.draft_accepted_ratio,
        "draft_gain": last.batch.draft_gain,
        "kv_usage": _mean([s.kv.usage for s in live]),
        "kv_waste": _mean([s.kv.fragmentation_ratio for s in live]),
        "prefix_hit_ratio": last.kv.prefix_hit_ratio,
    }  # fmt: skip


def _mean(values: Sequence[float | None]) -> float | None:
    known = [float(v) for v in values if v is not None and math.isfinite(v)]
    return sum(known) / len(known) if known else None
