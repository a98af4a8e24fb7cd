"""What held a run back: room in the KV cache, the batch's size, the machine, or the load.

Two questions are asked. What kept waiting requests out (the scheduler says so at every step)?
And would letting twice as many in have helped (the cost of a step by its tokens says so)? Where
a doubling gains little the machine is the limit, whatever kept requests out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import theilslopes

from engine.core import Engine
from playbooks.statistics.knee import DOUBLING_GAIN

FITTED = 300
"""Steps of which a cost line is made: all pairs of them are looked at."""
LEAST_SPREAD = 2.0
"""Most over fewest tokens of a step, below which no line can be drawn."""


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a step: `fixed` + `per_token` × tokens."""

    fixed: float
    per_token: float

    def at(self, tokens: float) -> float:
        return self.fixed + self.per_token * tokens

    def doubling_gain(self, tokens: float) -> float:
        """More tokens a second from steps of twice as many."""
        return 2 * self.at(tokens) / self.at(2 * tokens) - 1


@dataclass(frozen=True)
class Bound:
    by: str
    """kv | batch | compute | load"""
    limited_by: str
    """What kept requests out: kv | batch | token_budget | load (nobody waited)."""
    gain: float | None
    """What twice the batch would gain; None: not known."""
    cost: Cost | None
    mean_running: float
    padding_share: float
    """Of all tokens computed."""

    @property
    def why(self) -> str:
        reasons = {
            "kv": f"the KV cache had no room for more than {self.mean_running:.0f} rows",
            "batch": f"the batch was full at {self.mean_running:.0f} rows",
            "token_budget": "every step was full of tokens",
            "load": f"nobody waited while {self.mean_running:.0f} rows ran",
        }
        text = reasons[self.limited_by]
        if self.gain is not None:
            text += f"; twice as many would give {max(self.gain, 0):.0%} more tokens a second"
        if self.padding_share >= 0.01:
            text += f"; {self.padding_share:.0%} of what was computed was padding"
        return text

    def to_dict(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "limited_by": self.limited_by,
            "doubling_gain": self.gain,
            "step_fixed_ms": self.cost.fixed if self.cost else None,
            "step_ms_per_token": self.cost.per_token if self.cost else None,
            "mean_running": self.mean_running,
            "padding_share": self.padding_share,
            "why": self.why,
        }


def find_bound(
    engine: Engine, tokens: np.ndarray, ms: np.ndarray, running: np.ndarray, waiting: np.ndarray
) -> Bound:
    """Of the steps since the engine's last reset (one entry each)."""
    totals = engine.telemetry.totals
    useful_steps = tokens > 0
    pressed = (waiting > 0) & useful_steps
    chosen = pressed if pressed.any() else useful_steps
    limited_by = _limited_by(engine, totals, bool(pressed.any()), running[chosen])
    cost = step_cost(tokens, ms)
    mean_tokens = float(tokens[chosen].mean()) if chosen.any() else 0.0
    gain = cost.doubling_gain(mean_tokens) if cost is not None and mean_tokens else None
    useful = totals["prefill_tokens"] + totals["output_tokens"]
    padding = totals["padding_tokens"]
    return Bound(
        by=judge(limited_by, gain),
        limited_by=limited_by,
        gain=gain,
        cost=cost,
        mean_running=float(running[chosen].mean()) if chosen.any() else 0.0,
        padding_share=padding / (useful + padding) if padding else 0.0,
    )


def judge(limited_by: str, gain: float | None) -> str:
    """kv | batch | compute | load."""
    if limited_by == "load":
        return "load"
    worth = gain is None or gain >= DOUBLING_GAIN
    return limited_by if worth and limited_by != "token_budget" else "compute"


def _limited_by(engine: Engine, totals: Counter[str], pressed: bool, running: np.ndarray) -> str:
    """The commonest reason why no more were let in while some waited."""
    if not pressed:
        return "load"
    if engine.config.policy == "static":
        return "batch" if running.max() >= engine.scheduler.cap else "kv"
    steps = {"kv": totals["bound_kv"], "batch": totals["bound_cap"]}
    steps["token_budget"] = totals["bound_token_budget"]
    # A full step keeps requests out for a moment only; it is the limit when nothing else ever is.
    firm = {name: count for name, count in steps.items() if name != "token_budget" and count}
    return max(firm or steps, key=lambda name: steps[name])


def step_cost(tokens: np.ndarray, ms: np.ndarray) -> Cost | None:
    """A robust line through the steps; None where they are all alike."""
    known = tokens > 0
    tokens, ms = tokens[known], ms[known]
    if len(tokens) < 10 or tokens.max() < LEAST_SPREAD * tokens.min():
        return None
    few = np.unique(np.linspace(0, len(tokens) - 1, FITTED).astype(int))
    order = np.argsort(tokens, kind="stable")[few]
    slope, level, *_ = theilslopes(ms[order], tokens[order], method="joint")
    return Cost(max(float(level), 0.0), float(slope)) if slope > 0 else None
