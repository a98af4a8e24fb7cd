"""What each arm of an experiment measured, and what the difference between two arms proves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.config import EngineConfig
from playbooks.load.summary import latency_block
from playbooks.measure.bound import judge
from playbooks.measure.experiment import ArmSpec, Goal
from playbooks.measure.trial import Trial
from playbooks.statistics.intervals import (
    Interval,
    paired_change,
    positive_interval,
    quantile_change,
    verdict,
)

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms")


@dataclass
class Arm:
    """One arm and its trials, a closed batch and perhaps an open loop for each repeat."""

    spec: ArmSpec
    config: EngineConfig
    batches: list[Trial] = field(default_factory=list)
    open_loops: list[Trial] = field(default_factory=list)
    quality: str | None = None
    """Verdict on its KV format; None: not measured."""

    @property
    def timed(self) -> list[Trial]:
        """The trials that latencies and memory are read from: those at the arrival rate."""
        return self.open_loops or self.batches

    def samples(self, metric: str) -> list[np.ndarray]:
        return [trial.samples(metric) for trial in self.timed]

    def pooled(self, metric: str) -> np.ndarray:
        if metric == "itl_ms":
            return np.concatenate([r.itl_ms for t in self.timed for r in t.records])
        values = np.concatenate(self.samples(metric))
        pooled: np.ndarray = values[~np.isnan(values)]
        return pooled

    def throughput(self) -> list[float]:
        return [trial.output_tok_s for trial in self.batches]

    def memory(self) -> list[float]:
        """Bytes of weights and of the KV cache's fullest moment, by repeat."""
        return [float(t.weights_bytes + t.kv["peak_bytes"]) for t in self.timed]

    def held(self) -> list[float]:
        """KV bytes held for each token in the cache, reservations included, by repeat."""
        return [t.kv["held_bytes_per_token"] or math.nan for t in self.timed]

    def to_dict(self) -> dict[str, Any]:
        first = self.batches[0]
        rates = [t.summary["requests"]["completed"] / t.wall_s for t in self.batches]
        return {
            "name": self.spec.name,
            "changes": self.spec.changes,
            "together": self.spec.together,
            "why": self.spec.why,
            "config": self.config.to_dict(),
            "throughput": {
                "output_tok_s": float(np.mean(self.throughput())),
                "requests_s": float(np.mean(rates)),
                "repeats": self.throughput(),
                "interval": interval_dict(positive_interval(self.throughput())),
            },
            "latency": {name: latency_block(self.pooled(name)) for name in LATENCIES},
            "kv": first.kv | {"held_bytes_per_token": _mean(self.held()),
                              "peak_bytes": _mean([t.kv["peak_bytes"] for t in self.timed])},
            "memory": {"weights_and_kv_bytes": _mean(self.memory())},
            "preemptions": sum(t.totals.get("preemptions", 0) for t in self.batches),
            "bound_by": self.bound_by,
            "bound": [t.bound.to_dict() for t in self.batches],
            "quality": self.quality,
        }  # fmt: skip

    @property
    def bound_by(self) -> str:
        """kv | batch | compute | load: of all closed batches together."""
        bounds = [t.bound for t in self.batches]
        limits = [b.limited_by for b in bounds]
        gains = [b.gain for b in bounds if b.gain is not None]
        return judge(max(limits, key=limits.count), float(np.median(gains)) if gains else None)

    @property
    def typical_bound(self) -> str:
        """Why, in words, of the first closed batch with that verdict."""
        same = [t.bound for t in self.batches if t.bound.by == self.bound_by]
        return (same or [self.batches[0].bound])[0].why


def _mean(values: list[float]) -> float | None:
    known = [v for v in values if not math.isnan(v)]
    return float(np.mean(known)) if known else None


@dataclass(frozen=True)
class ArmMetric:
    name: str
    title: str
    unit: str
    better: str
    """higher | lower"""
    value: Callable[[Arm], float | None]
    change: Callable[[Arm, Arm, int], Interval | None]
    """Relative change from the first arm to the second, with a seed for resampling."""


def _quantile(metric: str, q: float, title: str) -> ArmMetric:
    def value(arm: Arm) -> float | None:
        key = f"p{round(q * 100)}"
        number: float | None = latency_block(arm.pooled(metric))[key]
        return number

    def change(before: Arm, after: Arm, seed: int) -> Interval | None:
        pairs = [_defined(a, b) for a, b in zip(before.samples(metric), after.samples(metric),
                                                strict=True)]  # fmt: skip
        return quantile_change([a for a, _ in pairs], [b for _, b in pairs], q, seed)

    name = f"p{round(q * 100)}_{metric.removesuffix('_ms')}"
    return ArmMetric(name, title, "ms", "lower", value, change)


def _defined(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    both = ~(np.isnan(a) | np.isnan(b))
    return a[both], b[both]


def _by_repeat(
    name: str, title: str, unit: str, better: str, read: Callable[[Arm], list[float]]
) -> ArmMetric:
    return ArmMetric(
        name, title, unit, better,
        lambda arm: _mean(read(arm)),
        lambda before, after, seed: paired_change(read(before), read(after), seed),
    )  # fmt: skip


def _exact(name: str, title: str, unit: str, read: Callable[[Arm], float]) -> ArmMetric:
    """Known, not measured: its interval is a point."""

    def change(before: Arm, after: Arm, seed: int) -> Interval:
        ratio = read(after) / read(before) - 1
        return Interval(ratio, ratio, ratio, 1)

    return ArmMetric(name, title, unit, "lower", read, change)


METRICS = (
    _by_repeat("throughput", "output throughput", "tok/s", "higher", Arm.throughput),
    _quantile("e2e_ms", 0.5, "E2E p50"),
    _quantile("e2e_ms", 0.99, "E2E p99"),
    _quantile("ttft_ms", 0.5, "TTFT p50"),
    _quantile("ttft_ms", 0.99, "TTFT p99"),
    _quantile("tpot_ms", 0.5, "TPOT p50"),
    _exact(
        "kv_bytes_per_token", "KV bytes per token", "B",
        lambda arm: float(arm.batches[0].kv["bytes_per_token"]),
    ),
    _by_repeat("kv_held_per_token", "KV bytes held per token", "B", "lower", Arm.held),
    _by_repeat("memory", "weights and KV at peak", "B", "lower", Arm.memory),
)  # fmt: skip


def effect(metric: ArmMetric, before: Arm, after: Arm, seed: int) -> dict[str, Any]:
    """One row of `effects`: changes are relative, so −0.3 is 30 % less."""
    change = metric.change(before, after, seed)
    return {
        "metric": metric.name,
        "title": metric.title,
        "unit": metric.unit,
        "better": metric.better,
        "from": before.spec.name,
        "to": after.spec.name,
        "before": metric.value(before),
        "after": metric.value(after),
        "change": change.estimate if change else None,
        "low": change.low if change else None,
        "high": change.high if change else None,
        "n": change.n if change else 0,
        "verdict": verdict(change, metric.better),
    }


def effects_between(before: Arm, after: Arm, seed: int) -> list[dict[str, Any]]:
    return [effect(metric, before, after, seed) for metric in METRICS]


def judge_goal(goal: Goal, row: dict[str, Any]) -> dict[str, Any]:
    """pass | fail | inconclusive, from the effect of the last arm over the first."""
    found = {"metric": goal.metric, "at_least": goal.at_least, "at_most": goal.at_most}
    change, low, high = row["change"], row["low"], row["high"]
    if change is None:
        return found | {"ratio": None, "verdict": "inconclusive", "why": "n too small"}
    ratio = 1 + change
    met = ratio >= goal.at_least if goal.at_least is not None else ratio <= (goal.at_most or 0)
    straddles = low <= 0 <= high
    why = f"{ratio:.2f} of before, interval {1 + low:.2f} … {1 + high:.2f}"
    outcome = "inconclusive" if straddles else "pass" if met else "fail"
    return found | {"ratio": ratio, "verdict": outcome, "why": why}


def interval_dict(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"low": interval.low, "high": interval.high, "n": interval.n}
