"""The published shapes of a log record and of what `evewatch log` reports."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Value = str | float | bool | None


class ChangeRow(TypedDict):
    key: str
    before: Any
    after: Any


class LogEffectRow(TypedDict):
    metric: str
    before: Value
    after: Value
    n: int | None
    interval: list[float] | None
    verdict: str | None


class LogRecord(TypedDict):
    """One line of the log."""

    schema: Literal[1]
    id: str
    time: str
    operator: str | None
    title: str
    what: list[ChangeRow]
    why: str
    how: dict[str, Any]
    effect: list[LogEffectRow]
    problems: list[str]
    decision: Literal["adopt", "reject", "hold", "rolled_back"]
    rollback: str
    claim: Literal["measured", "inferred", "simulated"]
    environment: dict[str, Any]
    artifacts: list[str]
    prev: str | None
    seal: str | None


class DamageRow(TypedDict):
    line: int
    kind: Literal["torn", "unreadable", "altered", "chain", "unsealed"]
    text: str
    id: str | None


class LogReport(TypedDict):
    schema: Literal[1]
    kind: Literal["log"]
    file: str
    total: int
    records: list[LogRecord]
    damage: list[DamageRow]


class LogVerifyReport(TypedDict):
    schema: Literal[1]
    kind: Literal["log_verify"]
    file: str
    verdict: Literal["pass", "warn", "fail"]
    records: int
    head: str | None
    sealed: int
    seals_checked: bool
    damage: list[DamageRow]
    set_aside: int


class DiffSide(TypedDict):
    id: str
    time: str
    title: str
    decision: str


class DiffRow(TypedDict):
    key: str
    a: Any
    b: Any


class DiffEffect(TypedDict):
    metric: str
    a: Value
    b: Value
    change: float | None
    verdict_a: str | None
    verdict_b: str | None


class LogDiffReport(TypedDict):
    schema: Literal[1]
    kind: Literal["log_diff"]
    a: DiffSide
    b: DiffSide
    what: list[DiffRow]
    how: list[DiffRow]
    effect: list[DiffEffect]
    environment: list[DiffRow]
    notes: list[str]


SHAPES: dict[str, type] = {
    "log_record": LogRecord,
    "log": LogReport,
    "log_verify": LogVerifyReport,
    "log_diff": LogDiffReport,
}
