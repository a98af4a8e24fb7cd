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


SLOT_NS = 10_000_000
"""Of a machine's own time, the piece that is equally slow throughout."""
RUN = 100
"""Slots one after another that are taken together: a machine is slow for a while."""


class FittedCost:
    """A StepCost: what the coefficients say, on a machine that is now slower and now faster.

    `slowness`: measured over fitted time, slot by slot, as the fit saw it; runs of slots are
    taken from places drawn with `seed`. It belongs to time and not to steps: what others took
    from short steps for a tenth of a second takes a tenth of a second from long ones too.
    Empty: no chance in it. `speed`: above 1 the whole machine is so much faster than in the fit.
    """

    def __init__(
        self,
        coefficients: CostCoefficients,
        slowness: tuple[float, ...] = (),
        *,
        speed: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._coefficients = coefficients
        self._slowness, self._speed = slowness, speed
        self._draw = random.Random(seed).random
        self._slot = self._slots = 0
        self._rest, self._now = 0.0, 1.0
        """Of the slot that runs: ns that are left, and how slow it is."""
        self.least = int(coefficients.of_tokens(0) * min(slowness, default=1.0) / speed)

    def __call__(self, work: StepWork) -> int:
        """What the step takes at the slowness of each slot that it lies in."""
        todo, spent = self._coefficients.of(work) / self._speed, 0.0
        if not self._slowness:
            return max(1, int(todo))
        while todo * self._now > self._rest:
            spent += self._rest
            todo -= self._rest / self._now
            self._next_slot()
        self._rest -= todo * self._now
        return max(1, int(spent + todo * self._now))

    def _next_slot(self) -> None:
        if not self._slots:
            self._slot, self._slots = int(self._draw() * len(self._slowness)), RUN
        self._now = self._slowness[self._slot % len(self._slowness)]
        self._slot += 1
        self._slots -= 1
        self._rest = float(SLOT_NS)
