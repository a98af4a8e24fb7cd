"""The limits of every quality metric, in one table, and how they make a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PASS, WARN, FAIL = "pass", "warn", "fail"
INCONCLUSIVE = "inconclusive"
NOT_AVAILABLE = "not available"


@dataclass(frozen=True)
class Limit:
    """Passes up to `good`, fails from `bad` on, and warns between them."""

    metric: str
    title: str
    good: float
    bad: float
    percent: bool = False
    """Shown as a percentage."""
    required: bool = True
    """Without a value there is no verdict."""

    @property
    def falling(self) -> bool:
        """More is better."""
        return self.metric in HIGHER_IS_BETTER

    def judge(self, value: float | None) -> str:
        if value is None:
            return INCONCLUSIVE if self.required else NOT_AVAILABLE
        sign = -1.0 if self.falling else 1.0
        if sign * value <= sign * self.good:
            return PASS
        return FAIL if sign * value >= sign * self.bad else WARN


SCORED = (
    Limit("mean_kld", "mean KL divergence", 0.002, 0.01),
    Limit("p99_kld", "99 % KL divergence", 0.02, 0.04),
    Limit("top1_agreement", "top-1 agreement", 0.99, 0.965, percent=True),
    Limit("rms_dp", "RMS probability change", 0.015, 0.03, percent=True),
    Limit("ppl_change", "perplexity change (absolute)", 0.003, 0.01, percent=True),
)
"""On distributions, teacher-forced."""

ANSWERED = (
    Limit("passkey_misses", "passkeys missed more, of 20", 1, 2, required=False),
    Limit("first_divergence", "first divergence, over the floor", 0.5, 0.5),
    Limit("length_change", "answer length, change (absolute)", 0.1, 0.1, True, required=False),
    Limit("repetition_p", "more answers loop: p of chance", 0.2, 0.05),
    Limit("early_end_p", "more answers end early: p of chance", 0.2, 0.05),
    Limit("structure_p", "fewer structured answers are valid: p", 0.2, 0.05, required=False),
    Limit("replacement_up", "more answers with U+FFFD", 0, 1),
    Limit("second_turn", "second turn differs with reuse", 0, 1, required=False),
)
"""On what the model writes, greedily."""

MAGNITUDE = ("ppl_change", "length_change")
"""Signed metrics whose size counts, not their direction."""
HIGHER_IS_BETTER = (
    "top1_agreement", "first_divergence", "repetition_p", "early_end_p", "structure_p",
)  # fmt: skip


@dataclass(frozen=True)
class LimitResult:
    """One metric against its limit."""

    limit: Limit
    value: float | None
    verdict: str

    @property
    def reason(self) -> str:
        """ "mean KL divergence: 0.012, must be at or below 0.002"."""
        return f"{self.limit.title}: {shown(self)}"

    def to_dict(self) -> dict[str, Any]:
        """As reports have it."""
        limit = self.limit
        return {
            "metric": limit.metric,
            "title": limit.title,
            "value": self.value,
            "pass": limit.good,
            "fail": limit.bad,
            "better": "higher" if limit.falling else "lower",
            "percent": limit.percent,
            "verdict": self.verdict,
        }


def judge(metrics: Mapping[str, float | None], limits: Iterable[Limit]) -> list[LimitResult]:
    gates = []
    for limit in limits:
        value = metrics.get(limit.metric)
        size = abs(value) if value is not None and limit.metric in MAGNITUDE else value
        gates.append(LimitResult(limit, value, limit.judge(size)))
    return gates


def verdict(gates: Iterable[LimitResult]) -> str:
    """The worst of them: a failure is one even where other evidence is missing."""
    found = {gate.verdict for gate in gates}
    for worst in (FAIL, INCONCLUSIVE, WARN):
        if worst in found:
            return worst
    return PASS


def shown(gate: LimitResult) -> str:
    """Value and limits for people: "0.012, must stay at or below 0.002"."""
    limit = gate.limit

    def number(value: float) -> str:
        return f"{value:.2%}" if limit.percent else f"{value:.3g}"

    if gate.value is None:
        return "no value: there is too little to measure it on"
    side = "above" if limit.falling else "below"
    return f"{number(gate.value)}, must be at or {side} {number(limit.good)}"
