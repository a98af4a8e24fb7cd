"""What a canary is to do: its stages, how long, how much evidence, and where the limits are."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from annotated_types import Ge, Gt, Lt

from engine.errors import ConfigError
from playbooks.statistics.quantile_ratio import least_for_bound
from playbooks.steps.models import CanaryStep

HIGH_ALPHA = 0.05
"""Of the tail's upper bound: what is needed to go on, where the lower bound rolls back."""
LOOKS_A_STAGE = 24
STATISTICAL_RULES = 3
"""Errors, tail and memory share the alpha."""
TAILS = (0.99, 0.9)
"""The tail that is compared, the first that the least number of samples can bound."""


@dataclass(frozen=True)
class CanaryPlan(CanaryStep):
    """What a canary was told, and what nobody is asked. Times are before `time_scale`."""

    drain_s: Annotated[float, Gt(0)] = 60.0
    """After a roll-back the candidate's open requests may take so long to end there."""
    horizon_s: Annotated[float, Gt(0)] = 86_400.0
    """Memory that runs out within this rolls back."""
    error_delta: Annotated[float, Ge(0), Lt(1)] = 0.005
    """Fewer additional errors than this are no reason to roll back."""
    alpha: Annotated[float, Gt(0), Lt(0.5)] = 0.01
    """Chance that a candidate as good as the baseline is rolled back, over all looks together."""
    faults: Annotated[int, Ge(1)] = 3
    """So many faults of the candidate's engine end it at once."""

    @classmethod
    def of(cls, step: CanaryStep) -> CanaryPlan:
        """Raises ConfigError for values that contradict each other."""
        return cls(**{field.name: getattr(step, field.name) for field in fields(CanaryStep)})

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Of the users, rising; 1 is everybody."""
        return parse_stages(self.stages)

    @property
    def tail(self) -> float:
        """The quantile that is compared."""
        return next(q for q in TAILS if self.min_samples >= least_for_bound(q, HIGH_ALPHA))

    @property
    def look_s(self) -> float:
        """Between two looks, scaled."""
        return max(self.hold_s / LOOKS_A_STAGE, self.least_s / 2) * self.time_scale

    @property
    def looks(self) -> int:
        """Most looks there can be, one more a stage for a look that an alarm brings forward."""
        a_stage = math.ceil(self.hold_s * self.time_scale / self.look_s) + 1
        return a_stage * len(self.shares)

    @property
    def look_alpha(self) -> float:
        """Of one rule at one look."""
        return self.alpha / (self.looks * STATISTICAL_RULES)

    @property
    def whole(self) -> bool:
        """The last stage is everybody: it is held against the baseline's time alone."""
        return self.shares[-1] == 1.0

    def scaled(self, seconds: float) -> float:
        return seconds * self.time_scale

    @property
    def warnings(self) -> list[str]:
        notes = []
        if self.tail < TAILS[0]:
            notes.append(
                f"min_samples {self.min_samples}: too few for a P99, the P{self.tail * 100:.0f} "
                f"is compared (P99 needs {least_for_bound(TAILS[0], HIGH_ALPHA)})"
            )
        if self.waive:
            notes.append(f"done without, as asked: {', '.join(self.waive)}")
        return notes

    def to_dict(self) -> dict[str, Any]:
        as_run = ("least_s", "hold_s", "drain_s", "horizon_s")
        names = ("min_samples", "look_s", "time_scale", "metric", "tail", "tail_ratio",
                 "error_delta", "alpha", "look_alpha", "looks", "faults", "users")  # fmt: skip
        return {
            "stages": list(self.shares),
            **{name: self.scaled(getattr(self, name)) for name in as_run},
            **{name: getattr(self, name) for name in names},
            "waive": list(self.waive),
            "seed": self.seed or 0,
        }


def parse_stages(text: str) -> tuple[float, ...]:
    """ "1,10,50,100" (percent) -> rising shares. Raises ConfigError."""
    try:
        shares = tuple(float(part) / 100 for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"stages: {text!r}: expected percentages with commas, like 1,10,50,100"
        ) from None
    rising = all(a < b for a, b in itertools.pairwise(shares))
    if not rising or not 0 < shares[0] <= shares[-1] <= 1:
        raise ConfigError(f"stages: {text!r}: expected rising shares above 0 up to 100 %")
    return shares


def percent(share: float) -> str:
    return f"{share * 100:.4g} %"
