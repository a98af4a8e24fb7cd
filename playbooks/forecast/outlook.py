"""What traffic is to be expected, hour by hour, and several plausible courses of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from scipy.stats import norm

from playbooks.forecast.bursts import Bursts
from playbooks.forecast.history.history import HOUR_S
from playbooks.forecast.sizes import Sizes
from playbooks.forecast.traffic import SlotTraffic

LEVEL = 0.8
"""Of the intervals."""
NEAR = 2
"""Hours before and after one, whose errors say what its own may be."""


@dataclass(frozen=True)
class Outlook:
    """Of each hour from `start` on."""

    start: datetime
    rates: np.ndarray
    """float [hours]: requests/s expected."""
    errors: np.ndarray
    """float [n, hours]: logarithms by which plausible courses are off; with either sign."""
    sizes: tuple[Sizes, ...]
    bursts: Bursts
    block_tokens: int
    specials: tuple[tuple[str, ...], ...]
    """Names of the calendar's days that an hour is in."""
    last_value: float
    """Requests/s of the newest hour of the history, …"""
    last_week: np.ndarray
    """float [hours]: … and of the same hour a week before, the newest that there is; NaN: not
    known."""
    assumptions: tuple[str, ...]

    def expected(self, seed: int = 0) -> SlotTraffic:
        return self._traffic(self.rates, seed)

    def plausible(self, count: int, seed: int = 0) -> list[SlotTraffic]:
        """`count` courses. Every past error is used, with either sign, before one comes again."""
        rng = np.random.default_rng(seed)
        both = np.concatenate([self.errors, -self.errors])
        rounds = -(-count // len(both))
        order = np.concatenate([rng.permutation(len(both)) for _ in range(rounds)])[:count]
        seeds = rng.integers(1 << 31, size=count).tolist()
        return [
            self._traffic(self.rates * np.exp(both[path]), own)
            for path, own in zip(order, seeds, strict=True)
        ]

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """float [hours], twice: requests/s between which an hour lies with that probability, the
        chance of so many arrivals included."""
        off = np.abs(self.errors)
        hours = off.shape[1]
        near = [off[:, max(i - NEAR, 0) : i + NEAR + 1] for i in range(hours)]
        model = np.array([float(np.quantile(errors, level)) for errors in near])
        arrivals = np.maximum(self.rates * HOUR_S, 1.0)
        chance = norm.ppf((1 + level) / 2) * np.sqrt(self.bursts.dispersion / arrivals)
        factor = np.exp(np.hypot(model, chance))
        return self.rates / factor, self.rates * factor

    def report(self) -> dict[str, Any]:
        """As it stands in a forecast's report under "traffic"; `score` reads it again. Rates are
        requests/s; None: not known."""
        low, high = self.interval()
        begin, zone = self.start.timestamp(), self.start.tzinfo
        hours = [
            {
                "start": datetime.fromtimestamp(begin + i * HOUR_S, zone).isoformat(),
                "expected": float(self.rates[i]),
                "low": float(low[i]),
                "high": float(high[i]),
                "last_value": self.last_value,
                "last_week": None if math.isnan(self.last_week[i]) else float(self.last_week[i]),
                "special": list(self.specials[i]),
            }
            for i in range(len(self.rates))
        ]
        return {
            "start": self.start.isoformat(),
            "level": LEVEL,
            "bursts": self.bursts.label,
            "lengths": sorted({sizes.label for sizes in self.sizes}),
            "assumptions": list(self.assumptions),
            "hours": hours,
        }

    def _traffic(self, rates: np.ndarray, seed: int) -> SlotTraffic:
        return SlotTraffic(
            self.start, tuple(rates.tolist()), HOUR_S, self.bursts, self.sizes, seed,
            self.block_tokens,
        )  # fmt: skip
