"""How arrivals lie within a time in which their rate does not change.

Time counts in expected arrivals: a rate of one. Every draw begins at a moment that has nothing to
do with an arrival, so a time cut into pieces has as many arrivals as the whole, however bursty
they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.random import Generator

WINDOW = 100
"""Expected arrivals of a time that is long beside a burst."""


class Bursts(Protocol):
    @property
    def label(self) -> str: ...

    @property
    def dispersion(self) -> float:
        """Variance over mean of the number of arrivals in a long time; of Poisson arrivals 1."""

    def draw(self, rng: Generator, expected: float) -> np.ndarray:
        """Moments in [0, expected), rising."""


@dataclass(frozen=True)
class GammaGaps:
    """Independent gaps with a coefficient of variation: 1 is Poisson, above it is bursty."""

    cv: float = 1.0

    @property
    def label(self) -> str:
        return "poisson" if self.cv == 1 else f"gamma, CV {self.cv:.3g}"

    @property
    def dispersion(self) -> float:
        return self.cv**2

    def draw(self, rng: Generator, expected: float) -> np.ndarray:
        shape = self.cv**-2
        # The gap that a moment falls into is longer than others; the moment lies anywhere in it.
        first = rng.random() * rng.gamma(shape + 1) / shape
        pieces, reached = [np.array([first])], first
        while reached < expected:
            count = int(expected - reached + 4 * self.cv * (expected - reached) ** 0.5) + 16
            pieces.append(reached + np.cumsum(rng.gamma(shape, size=count) / shape))
            reached = pieces[-1][-1]
        moments = np.concatenate(pieces)
        return moments[: np.searchsorted(moments, expected)]


@dataclass(frozen=True)
class ResampledGaps:
    """Windows of what was seen, from anywhere in it: bursts of bursts stay as they were."""

    moments: tuple[float, ...]
    """Rising, from 0 to below the number of them; what follows the last begins at the first."""

    @property
    def label(self) -> str:
        return f"windows of {len(self.moments):,} arrivals"

    @cached_property
    def _moments(self) -> np.ndarray:
        return np.array(self.moments)

    @property
    def dispersion(self) -> float:
        counts = np.bincount((self._moments // WINDOW).astype(int))[:-1]
        return float(counts.var() / WINDOW) if len(counts) > 1 else 1.0

    def draw(self, rng: Generator, expected: float) -> np.ndarray:
        seen, begin = len(self.moments), rng.random() * len(self.moments)
        rounds = int((begin + expected) // seen) + 1
        moments = np.concatenate([self._moments + i * seen for i in range(rounds)]) - begin
        return moments[np.searchsorted(moments, 0) : np.searchsorted(moments, expected)]
