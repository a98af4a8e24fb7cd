"""The shapes of the reports of `check` and its soak, and of `playbook selftest`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

StepVerdict = Literal[
    "pass", "warn", "fail", "inconclusive", "error", "skipped", "not available", "interrupted"
]


class GateResult(TypedDict):
    metric: str
    op: Literal["<", "<=", ">", ">=", "==", "!="]
    limit: float
    severity: Literal["fail", "warn"]
    value: float | None
    verdict: Literal["pass", "warn", "fail", "inconclusive"]
    evidence: str


class StepResult(TypedDict):
    id: str
    kind: str
    title: str
    verdict: StepVerdict
    reason: str
    gates: list[GateResult]
    metrics: dict[str, Any]
    parameters: dict[str, Any]
    report: dict[str, Any] | None
    seconds: float


class FindingResult(TypedDict):
    cause: str
    confidence: float
    evidence: list[str]
    remedy: str
    applies: Literal["live", "restart"] | None
    refuted_by: str
    missing: list[str]


class CheckReport(TypedDict):
    schema: Literal[1]
    kind: Literal["check"]
    name: str
    title: str
    state: Literal["running", "done", "interrupted", "failed"]
    problem: str | None
    verdict: Literal["pass", "warn", "fail", "inconclusive", "error"]
    target: dict[str, Any]
    fault: str | None
    withheld: list[str]
    time_budget_s: float | None
    started: str
    seconds: float
    process: int
    steps: list[StepResult]
    not_run: list[str]
    findings: list[FindingResult]
    folder: str
    files: list[str]


class Grown(TypedDict):
    what: str
    kind: Literal["ledger", "container", "object", "memory"]
    per_request: float
    low: float | None


class Slope(TypedDict):
    per_request: float
    low: float | None


class StormResult(TypedDict):
    name: str
    sent: int
    ended: dict[str, int]
    left: dict[str, int]
    pool: str | None
    clean: bool


class SoakReport(TypedDict):
    schema: Literal[1]
    kind: Literal["soak"]
    verdict: Literal["pass", "fail"]
    model: str
    config: dict[str, Any]
    work: dict[str, Any]
    served: int
    slopes: dict[str, Slope | None]
    grew: list[Grown]
    held: dict[str, dict[str, int]]
    storms: list[StormResult]
    looks: list[dict[str, Any]]
    seconds: float


class SelftestRow(TypedDict):
    fault: str | None
    what: str
    wanted: str
    first: str
    found: bool
    confidence: float
    evidence: str
    others: list[str]
    seconds: float


class SelftestReport(TypedDict):
    schema: Literal[1]
    kind: Literal["selftest"]
    verdict: Literal["pass", "fail"]
    model: str
    config: dict[str, Any]
    load: dict[str, Any]
    rows: list[SelftestRow]
    seconds: float


CHECK_SHAPES: dict[str, type] = {
    "check": CheckReport,
    "soak": SoakReport,
    "selftest": SelftestReport,
}
