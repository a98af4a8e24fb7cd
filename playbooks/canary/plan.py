"""What a canary is to do: its stages, how long, how much evidence, and where the limits are."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from engine.errors import ConfigError
from playbooks.statistics.quantile_ratio import least_for_bound

STAGES = (0.01, 0.1, 0.5, 1.0)
HIGH_ALPHA = 0.05
"""Of the tail's upper bound: what is needed to go on, where the lower bound rolls back."""
LOOKS_A_STAGE = 24
STATISTICAL_RULES = 3
"""Errors, tail and memory share the alpha."""
TAILS = (0.99, 0.9)
"""The tail that is compared, the first that the least number of samples can bound."""
METRICS = ("slowdown", "e2e", "ttft", "tpot")
WAIVABLE = ("memory", "quality", "crosstalk")


@dataclass(frozen=True)
class CanaryPlan:
    """Raises ConfigError naming the setting. Times are before `time_scale`."""

    stages: tuple[float, ...] = STAGES
    """Shares of the users, rising; 1 is everybody."""
    least_s: float = 600.0
    """A stage takes so long at least …"""
    min_samples: int = 300
    """… and has so many answered requests on both sides."""
    hold_s: float = 7200.0
    """A stage that is still undecided then ends the canary as inconclusive."""
    drain_s: float = 60.0
    """After a roll-back the candidate's open requests may take so long to end there."""
    horizon_s: float = 86_400.0
    """Memory that runs out within this rolls back."""
    time_scale: float = 1.0
    """Times all of the above: 0.1 makes a rehearsal ten times as fast."""
    metric: str = "slowdown"
    """Whose tail is compared: slowdown is E2E over what the baseline takes for such lengths."""
    tail_ratio: float = 1.10
    """A candidate's tail above this of the baseline's is a regression."""
    error_delta: float = 0.005
    """Fewer additional errors than this are no reason to roll back."""
    alpha: float = 0.01
    """Chance that a candidate as good as the baseline is rolled back, over all looks together."""
    faults: int = 3
    """So many faults of the candidate's engine end it at once."""
    users: int = 10_000
    waive: tuple[str, ...] = ()
    """Rules that the operator does without, because their evidence cannot be had."""
    seed: int = 0

    def __post_init__(self) -> None:
        shares = self.stages
        rising = all(a < b for a, b in itertools.pairwise(shares))
        if not shares or not rising or not 0 < shares[0] <= shares[-1] <= 1:
            raise ConfigError(
                f"stages: expected rising shares above 0 up to 100 %, got "
                f"{', '.join(f'{share:.4g}' for share in shares) or 'none'}"
            )
        for name in ("least_s", "hold_s", "drain_s", "horizon_s", "time_scale", "tail_ratio"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name}: expected a number above 0, got {getattr(self, name)}")
        if self.hold_s < self.least_s:
            raise ConfigError(f"hold_s: {self.hold_s:g} is below least_s {self.least_s:g}")
        if self.min_samples < least_for_bound(TAILS[-1], HIGH_ALPHA):
            raise ConfigError(
                f"min_samples: {self.min_samples} say nothing about a tail; expected at least "
                f"{least_for_bound(TAILS[-1], HIGH_ALPHA)} (P90) or "
                f"{least_for_bound(TAILS[0], HIGH_ALPHA)} (P99)"
            )
        if self.metric not in METRICS:
            raise ConfigError(f"metric: expected {', '.join(METRICS)}, got {self.metric!r}")
        if not 0 < self.alpha < 0.5:
            raise ConfigError(f"alpha: expected a number above 0 below 0.5, got {self.alpha}")
        if not 0 <= self.error_delta < 1:
            raise ConfigError(f"error_delta: expected 0 to 1, got {self.error_delta}")
        for name, least in (("faults", 1), ("users", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}: expected at least {least}, got {getattr(self, name)}")
        for name in self.waive:
            if name not in WAIVABLE:
                raise ConfigError(f"waive: expected {', '.join(WAIVABLE)}, got {name!r}")

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
        return a_stage * len(self.stages)

    @property
    def look_alpha(self) -> float:
        """Of one rule at one look."""
        return self.alpha / (self.looks * STATISTICAL_RULES)

    @property
    def whole(self) -> bool:
        """The last stage is everybody: it is held against the baseline's time alone."""
        return self.stages[-1] == 1.0

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
        return {
            "stages": list(self.stages),
            "least_s": self.scaled(self.least_s),
            "min_samples": self.min_samples,
            "hold_s": self.scaled(self.hold_s),
            "drain_s": self.scaled(self.drain_s),
            "horizon_s": self.scaled(self.horizon_s),
            "look_s": self.look_s,
            "time_scale": self.time_scale,
            "metric": self.metric,
            "tail": self.tail,
            "tail_ratio": self.tail_ratio,
            "error_delta": self.error_delta,
            "alpha": self.alpha,
            "look_alpha": self.look_alpha,
            "looks": self.looks,
            "faults": self.faults,
            "users": self.users,
            "waive": list(self.waive),
            "seed": self.seed,
        }


def parse_stages(text: str) -> tuple[float, ...]:
    """ "1,10,50,100" (percent) -> shares. Raises ConfigError."""
    try:
        return tuple(float(part) / 100 for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"stages: {text!r}: expected percentages with commas, like 1,10,50,100"
        ) from None


def percent(share: float) -> str:
    return f"{share * 100:.4g} %"
