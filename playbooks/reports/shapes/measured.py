"""The shapes of the measuring commands' reports.

A field that may be null has no number because n was too small, or because it does not apply.
Times are milliseconds, memory bytes, changes relative (−0.3 is 30 % less).
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Verdict = Literal["pass", "warn", "fail", "inconclusive"]
EffectVerdict = Literal["better", "worse", "no difference", "inconclusive"]


class Block(TypedDict):
    """A latency from raw samples."""

    p50: float | None
    p90: float | None
    p99: float | None
    mean: float | None
    n: int


class Throughput(TypedDict):
    output_tok_s: float
    total_tok_s: float
    requests_s: float


class Span(TypedDict):
    low: float
    high: float
    n: int


# --- profile -----------------------------------------------------------------------------


class ProfileWork(TypedDict):
    arrivals: str
    lengths: str
    requests: int
    seed: int


class StageRow(TypedDict):
    stage: Literal["queue", "tokenize", "prefill", "decode", "detokenize", "return"]
    share: float
    ms: Block


class PartRow(TypedDict):
    part: str
    label: str
    ms: float
    share: float


class StepTable(TypedDict):
    count: int
    mean_ms: float
    mean_rows: float
    total_ms: float
    parts: list[PartRow]
    prefill_share: float | None
    decode_share: float | None


class TraceFile(TypedDict):
    path: str
    steps: int


class InFlight(TypedDict):
    mean: float | None
    max: int | None


class ProfileReport(TypedDict):
    schema: Literal[1]
    kind: Literal["profile"]
    model: str
    identity: str
    config: dict[str, Any]
    work: ProfileWork
    throughput: Throughput
    latency: dict[str, Block]
    in_flight: InFlight
    stages: list[StageRow]
    steps: StepTable
    hot_spots: list[str]
    warnings: list[str]
    trace: TraceFile | None
    environment: dict[str, Any]
    seconds: float


# --- sweep -------------------------------------------------------------------------------


class SweepWork(TypedDict):
    lengths: str
    seed: int
    repeats: int
    p99_objective_ms: float | None
    p99_of: Literal["e2e_ms", "ttft_ms", "tpot_ms"]


class SweepPoint(TypedDict):
    batch: int
    output_tok_s: float
    low: float | None
    high: float | None
    repeats: list[float]
    latency: dict[str, Block]
    little_error: float
    counts: bool
    doubts: str | None
    bound_by: Literal["cap", "kv", "compute", "token_budget"]
    doubling_gain: float | None
    mean_running: float
    peak_pages: int


class Segments(TypedDict):
    at: float
    head: float
    tail: float
    ratio: float


class SweepReport(TypedDict):
    schema: Literal[1]
    kind: Literal["sweep"]
    model: str
    identity: str
    config: dict[str, Any]
    work: SweepWork
    points: list[SweepPoint]
    knee: int | None
    recommended_cap: int | None
    abstained: bool
    reasons: list[str]
    segmented_fit: Segments | None
    environment: dict[str, Any]
    seconds: float


# --- compare -----------------------------------------------------------------------------


class CompareWork(TypedDict):
    batch_requests: int
    rate_requests: int | None
    rate_requests_s: float | None
    lengths: str


class ArmThroughput(TypedDict):
    output_tok_s: float
    requests_s: float
    repeats: list[float]
    interval: Span | None


class ArmKv(TypedDict):
    format: str
    bytes_per_token: float
    fp16_bytes_per_token: float
    sealed_ratio: float
    effective_ratio: float | None
    held_bytes_per_token: float | None
    pages_total: int
    peak_pages: int
    peak_bytes: float | None
    pool_bytes: int


class ArmMemory(TypedDict):
    weights_and_kv_bytes: float | None


class BoundRow(TypedDict):
    by: Literal["kv", "batch", "compute", "load"]
    limited_by: Literal["kv", "batch", "token_budget", "load"]
    doubling_gain: float | None
    step_fixed_ms: float | None
    step_ms_per_token: float | None
    mean_running: float
    padding_share: float
    why: str


class ArmReport(TypedDict):
    name: str
    changes: dict[str, Any]
    together: str | None
    why: str
    config: dict[str, Any]
    throughput: ArmThroughput
    latency: dict[str, Block]
    kv: ArmKv
    memory: ArmMemory
    preemptions: int
    bound_by: Literal["kv", "batch", "compute", "load"]
    bound: list[BoundRow]
    quality: str | None


class EffectRow(TypedDict):
    metric: str
    title: str
    unit: str
    better: Literal["higher", "lower"]
    # "from" is a word of Python: see EffectEnds.
    to: str
    before: float | None
    after: float | None
    change: float | None
    low: float | None
    high: float | None
    n: int
    verdict: EffectVerdict


EffectEnds = TypedDict("EffectEnds", {"from": str})


class Effect(EffectRow, EffectEnds):
    """One metric, from one arm to another."""


class GoalRow(TypedDict):
    metric: str
    at_least: float | None
    at_most: float | None
    ratio: float | None
    verdict: Verdict
    why: str


class CompareReport(TypedDict):
    schema: Literal[1]
    kind: Literal["compare"]
    name: str
    title: str
    regime: str
    model: str
    identity: str
    quick: bool
    scale: float
    seed: int
    repeats: int
    work: CompareWork
    arms: list[ArmReport]
    effects: list[Effect]
    overall: list[Effect]
    goals: list[GoalRow]
    findings: list[str]
    verdict: Verdict
    metrics: dict[str, str]
    environment: dict[str, Any]
    seconds: float


# --- options -----------------------------------------------------------------------------


class OptionRow(TypedDict):
    id: str
    title: str
    setting: str
    available: bool
    gain: str
    measured: dict[str, Any] | None
    elsewhere: str
    source: str
    claim: Literal["measured here", "reported elsewhere"]
    risk: Literal["low", "middle", "high"]
    risk_level: int
    risk_note: str
    cost: Literal["low", "middle", "high"]
    cost_level: int
    cost_note: str
    rollback: str


class OptionsReport(TypedDict):
    schema: Literal[1]
    kind: Literal["options"]
    sort: str
    options: list[OptionRow]


MEASURED_SHAPES: dict[str, type] = {
    "profile": ProfileReport,
    "sweep": SweepReport,
    "compare": CompareReport,
    "options": OptionsReport,
}
