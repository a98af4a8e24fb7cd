"""The published shape of a canary's report."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Act = Literal["advance", "hold", "roll_back", "inconclusive"]
Number = float | None


class PlanRow(TypedDict):
    """Seconds are as they were run, after the time scale."""

    stages: list[float]
    least_s: float
    min_samples: int
    hold_s: float
    drain_s: float
    horizon_s: float
    look_s: float
    time_scale: float
    metric: Literal["slowdown", "e2e", "ttft", "tpot"]
    tail: float
    tail_ratio: float
    error_delta: float
    alpha: float
    look_alpha: float
    looks: int
    faults: int
    users: int
    waive: list[str]
    seed: int


class RulingRow(TypedDict):
    rule: Literal["faults", "errors", "tail", "memory", "crosstalk", "quality"]
    call: Literal["pass", "hold", "roll_back", "waived"]
    why: str
    numbers: dict[str, float | str | None]


class SideRow(TypedDict):
    requests: int
    answered: int
    failed: int
    errors: dict[str, int]
    latency: dict[str, dict[str, Number]]


class CanaryStageRow(TypedDict):
    """Stage 0 is the baseline's time alone."""

    stage: int
    share: float
    began_s: float
    ended_s: Number
    looks: int
    action: Act
    rulings: list[RulingRow]
    baseline: SideRow
    candidate: SideRow


class DecisionRow(TypedDict):
    at_s: float
    stage: int
    share: float
    look: int
    action: Literal["advance", "hold", "roll_back", "inconclusive", "promote"]
    title: str
    why: str
    rules: list[str]


class RollbackRow(TypedDict):
    in_flight: int
    finished: int
    retried: int
    routed_after: int
    last_request_ms: float
    idle_ms: float
    left: int | None


class QualityGate(TypedDict):
    metric: str
    title: str
    value: Number
    # "pass" is a word of Python: see QualityEnds.
    fail: float
    verdict: str


QualityEnds = TypedDict("QualityEnds", {"pass": float})


class QualityGateRow(QualityGate, QualityEnds):
    """One metric of the check before any traffic."""


class QualityRow(TypedDict):
    verdict: Literal["pass", "warn", "fail", "inconclusive"]
    reasons: list[str]
    gates: list[QualityGateRow]
    suspects: list[dict[str, Any]]
    note: str | None


class ProbeRow(TypedDict):
    asked: int
    differing: int
    mixed: int
    failed: int
    examples: list[dict[str, Any]]


class CanaryReport(TypedDict):
    schema: Literal[1]
    kind: Literal["canary"]
    verdict: Literal["pass", "fail", "inconclusive"]
    outcome: Literal["promoted", "rolled_back", "undecided"]
    why: str
    interrupted: bool
    warnings: list[str]
    baseline: dict[str, Any]
    candidate: dict[str, Any]
    changes: dict[str, Any]
    plan: PlanRow
    load: dict[str, Any]
    stages: list[CanaryStageRow]
    decisions: list[DecisionRow]
    rollback: RollbackRow | None
    quality: QualityRow | None
    probes: dict[str, ProbeRow]
    routed: dict[str, int]
    faults: dict[str, int]
    environment: dict[str, Any]
    seconds: float


CANARY_SHAPES: dict[str, type] = {"canary": CanaryReport}
