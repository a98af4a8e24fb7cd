"""The published shape of `evewatch env`."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class CheckRow(TypedDict):
    id: str
    verdict: Literal["pass", "warn", "fail", "skip"]
    value: str
    evidence: str
    remedy: str
    source: str


class EnvironmentReport(TypedDict):
    schema: Literal[1]
    kind: Literal["environment"]
    verdict: Literal["pass", "warn", "fail"]
    checks: list[CheckRow]
    counts: dict[str, int]
    facts: dict[str, Any]
