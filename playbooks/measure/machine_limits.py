"""How fast this machine multiplies a model's own shapes, in float32 and in integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.models import ModelSpec
from kernels.roofline import GemmRates, best_gemm_rate, best_integer_rate

LOOK_S = 0.8
"""For a look at one limit, about."""


@dataclass(frozen=True)
class Limit:
    """Of one kind of product, right before and right after a run."""

    before: GemmRates
    after: GemmRates

    @property
    def gflops(self) -> float:
        return (self.before.best + self.after.best) / 2

    def fraction(self, flops_per_s: float) -> float:
        return flops_per_s / (self.gflops * 1e9)


@dataclass(frozen=True)
class Look:
    """At one moment."""

    floats: GemmRates
    integers: GemmRates | None
    """None: there are no such products here."""

    @classmethod
    def at(cls, spec: ModelSpec) -> Look:
        shapes = spec.gemm_shapes()
        floats = best_gemm_rate(shapes, budget_s=LOOK_S)
        return cls(floats, best_integer_rate(shapes, budget_s=LOOK_S))


def limits(before: Look, after: Look) -> tuple[Limit, Limit | None]:
    """Of products in float32, and of integers."""
    integers = None
    if before.integers is not None and after.integers is not None:
        integers = Limit(before.integers, after.integers)
    return Limit(before.floats, after.floats), integers


def limit_rows(name: str, limit: Limit | None) -> dict[str, Any]:
    """For a report; all None where there is no such limit."""
    if limit is None:
        return dict.fromkeys(f"{name}_{key}" for key in ("gflops", "turns", "by", "rates"))
    return {
        f"{name}_gflops": limit.gflops,
        f"{name}_turns": [limit.before.best, limit.after.best],
        f"{name}_by": limit.after.by,
        f"{name}_rates": limit.after.rates,
    }
