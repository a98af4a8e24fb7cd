"""How long prompts and outputs are. Seeded: the same seed gives the same lengths."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import ndtri

from playbooks.load.draws import BLOCK, stratified

MOST = 1 << 20
"""No prompt or output is longer, in tokens."""


class Lengths(ABC):
    """A distribution of token counts, given by its quantiles."""

    @abstractmethod
    def quantile(self, at: np.ndarray) -> np.ndarray:
        """Length below which a share `at` (0 … 1) of all lengths lies."""

    @abstractmethod
    def scaled(self, factor: float) -> Lengths:
        """The same shape, every length times `factor`."""

    def draw(self, rng: Generator, count: int) -> list[int]:
        """Lengths for open-ended traffic, stratified over `count`."""
        return self._tokens(stratified(rng, count))

    def stream(self, rng: Generator) -> Iterator[int]:
        """Lengths without end."""
        while True:
            yield from self.draw(rng, BLOCK)

    def spread(self, rng: Generator, count: int) -> list[int]:
        """The distribution's own quantiles at (i + ½)/count, shuffled.

        Few requests then have the wanted mean and spread too, whatever the seed.
        """
        return self._tokens(rng.permutation((np.arange(count) + 0.5) / count))

    def _tokens(self, at: np.ndarray) -> list[int]:
        return [int(v) for v in self.quantile(at).round().clip(1, MOST)]


@dataclass(frozen=True)
class Lognormal(Lengths):
    """Lengths with ln(length) normal."""

    mu: float
    sigma: float
    least: int = 1
    most: int = MOST

    @classmethod
    def with_mean(cls, mean: float, sigma: float, most: int = MOST) -> Lognormal:
        """Of a given arithmetic mean."""
        return cls(math.log(mean) - sigma**2 / 2, sigma, most=most)

    def quantile(self, at: np.ndarray) -> np.ndarray:
        return np.exp(self.mu + self.sigma * ndtri(at)).clip(self.least, self.most)

    def scaled(self, factor: float) -> Lognormal:
        return Lognormal(self.mu + math.log(factor), self.sigma, self.least, self.most)


@dataclass(frozen=True)
class Uniform(Lengths):
    """All lengths from `least` to `most` alike."""

    least: float
    most: float

    def quantile(self, at: np.ndarray) -> np.ndarray:
        whole = at * (self.most - self.least + 1) - 0.5
        return self.least + whole

    def scaled(self, factor: float) -> Uniform:
        return Uniform(self.least * factor, self.most * factor)


@dataclass(frozen=True)
class Fixed(Lengths):
    """One length. It proves nothing about production, where lengths differ."""

    tokens: float

    def quantile(self, at: np.ndarray) -> np.ndarray:
        return np.full(len(at), self.tokens)

    def scaled(self, factor: float) -> Fixed:
        return Fixed(self.tokens * factor)


@dataclass(frozen=True)
class Empirical(Lengths):
    """What was observed: quantiles `lengths` at the shares `at`, a geometric line between two."""

    at: tuple[float, ...]
    lengths: tuple[float, ...]

    @classmethod
    def of_counts(cls, counts: np.ndarray, knots: int = 1001) -> Empirical:
        """`counts[n]` lengths of n tokens were seen; at least one."""
        at = np.linspace(0, 1, knots)
        seen = np.cumsum(counts)
        ranks = np.maximum(np.ceil(at * seen[-1]), 1)
        lengths = np.searchsorted(seen, ranks)
        return cls(tuple(at.tolist()), tuple(lengths.tolist()))

    def quantile(self, at: np.ndarray) -> np.ndarray:
        return np.exp(np.interp(at, self.at, np.log(self.lengths)))

    def scaled(self, factor: float) -> Empirical:
        return Empirical(self.at, tuple(length * factor for length in self.lengths))
