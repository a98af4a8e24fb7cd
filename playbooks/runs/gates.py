"""Gates: a metric, an operator, a value. A number that is missing never passes one."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PASS, WARN, FAIL, INCONCLUSIVE = "pass", "warn", "fail", "inconclusive"
NOT_TOLD = "not told"
"""Of a gate whose metric only the inside of an engine tells: it counts neither way."""
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
WORST = (FAIL, "error", INCONCLUSIVE, WARN, PASS)


@dataclass(frozen=True)
class Gate:
    metric: str
    op: str
    value: float
    severity: str = FAIL
    """fail: the step fails; warn: it is noted and passes."""

    def __str__(self) -> str:
        return f"{self.metric} {self.op} {self.value:g}"


@dataclass(frozen=True)
class Judged:
    gate: Gate
    verdict: str
    """pass | warn | fail | inconclusive | not told"""
    value: float | None
    evidence: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "metric": self.gate.metric,
            "op": self.gate.op,
            "limit": self.gate.value,
            "severity": self.gate.severity,
            "value": self.value,
            "verdict": self.verdict,
            "evidence": self.evidence,
        }


def judge(gate: Gate, metrics: Mapping[str, Any]) -> Judged:
    """Inconclusive where the metric is missing or no finite number."""
    value = metrics.get(gate.metric)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or not is_number or not math.isfinite(value):
        return Judged(gate, INCONCLUSIVE, None, f"{gate.metric} was not measured")
    good = OPERATORS[gate.op](value, gate.value)
    verdict = PASS if good else gate.severity
    word = "is" if good else "is not"
    return Judged(gate, verdict, value, f"{gate.metric} = {value:.6g} {word} {gate.op} "
                  f"{gate.value:g}")  # fmt: skip


def judge_all(
    gates: Iterable[Gate], metrics: Mapping[str, Any], not_told: frozenset[str] = frozenset()
) -> list[Judged]:
    return [
        Judged(gate, NOT_TOLD, None, f"{gate.metric} is not told from outside")
        if gate.metric in not_told
        else judge(gate, metrics)
        for gate in gates
    ]


def worst(verdicts: Iterable[str]) -> str:
    """A failure is one even where other evidence is missing; nothing at all proves nothing."""
    found = set(verdicts)
    return next((verdict for verdict in WORST if verdict in found), INCONCLUSIVE)
