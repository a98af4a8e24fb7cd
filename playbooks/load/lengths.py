"""How long prompts and outputs are. Seeded: the same seed gives the same lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import ndtri


@dataclass(frozen=True)
class Lognormal:
    """Lengths with ln(length) normal: the shape that public traces show."""

    mu: float
    sigma: float
    least: int = 1
    most: int = 1 << 20

    @classmethod
    def with_mean(cls, mean: float, sigma: float, most: int = 1 << 20) -> Lognormal:
        """Of a given arithmetic mean."""
        return cls(math.log(mean) - sigma**2 / 2, sigma, most=most)

    def draw(self, rng: Generator, count: int) -> list[int]:
        """Independent lengths: for open-ended traffic."""
        return self._tokens(rng.normal(size=count))

    def spread(self, rng: Generator, count: int) -> list[int]:
        """The distribution's own quantiles at (i + ½)/count, shuffled.

        Few requests then have the wanted mean and spread too, whatever the seed.
        """
        normal = ndtri((np.arange(count) + 0.5) / count)
        return self._tokens(rng.permutation(normal))

    def scaled(self, factor: float) -> Lognormal:
        return Lognormal(self.mu + math.log(factor), self.sigma, self.least, self.most)

    def _tokens(self, normal: np.ndarray) -> list[int]:
        values = np.exp(self.mu + self.sigma * normal).round()
        return [int(v) for v in values.clip(self.least, self.most)]


@dataclass(frozen=True)
class Preset:
    """Prompt and output lengths of one kind of traffic."""

    prompt: Lognormal
    output: Lognormal

    def scaled(self, factor: float) -> Preset:
        return Preset(self.prompt.scaled(factor), self.output.scaled(factor))


PRESETS = {
    "chat": Preset(Lognormal(6.63, 0.985, most=14_050), Lognormal(5.02, 0.86, most=1_000)),
    "code": Preset(Lognormal(7.00, 1.36, most=7_437), Lognormal(2.79, 0.85, most=1_899)),
}
"""Fitted to the Azure LLM inference traces of 2023 (Patel et al., Splitwise, ISCA 2024)."""
