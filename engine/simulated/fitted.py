"""What a step costs, in the numbers that a fit finds: a curve over tokens, and what is read."""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass

from engine.simulated.work import StepWork


@dataclass(frozen=True)
class CostCoefficients:
    """Nanoseconds. None of them is below 0: more work is never faster."""

    tokens: tuple[tuple[int, float], ...]
    """(tokens of a step, their cost), rising: straight between two, and on after the last. The
    first is the floor: a step takes no less."""
    row: float = 0.0
    context: float = 0.0
    chunk_context: float = 0.0
    sealed: float = 0.0

    def of(self, work: StepWork) -> float:
        return (
            self.of_tokens(work.tokens)
            + self.row * work.rows
            + self.context * work.context
            + self.chunk_context * work.chunk_context
            + self.sealed * work.sealed
        )

    def of_tokens(self, tokens: int) -> float:
        curve = self.tokens
        if len(curve) == 1 or tokens <= curve[0][0]:
            return curve[0][1]
        at = min(bisect_right(curve, (tokens, float("inf"))), len(curve) - 1)
        (low, below), (high, above) = curve[at - 1], curve[at]
        return below + (above - below) * (tokens - low) / (high - low)


RUN = 64
"""Steps one after another whose chance is taken together: a machine is slow for a while."""


class FittedCost:
    """A StepCost: what the coefficients say, times what steps differ from it by chance.

    `ratios`: measured over fitted, of steps in their order; runs of them are taken from places
    drawn with `seed`. None: no chance in it. `speed`: above 1 the whole machine is so much faster
    than in the fit.
    """

    def __init__(
        self,
        coefficients: CostCoefficients,
        ratios: tuple[float, ...] = (),
        *,
        speed: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._coefficients = coefficients
        self._ratios, self._speed = ratios or (1.0,), speed
        self._draw = random.Random(seed).random
        self._at = self._left = 0
        self.least = int(coefficients.of_tokens(0) * min(self._ratios) / speed)

    def __call__(self, work: StepWork) -> int:
        if not self._left:
            self._at, self._left = int(self._draw() * len(self._ratios)), RUN
        self._left -= 1
        self._at += 1
        ratio = self._ratios[self._at % len(self._ratios)]
        return max(1, int(self._coefficients.of(work) * ratio / self._speed))
