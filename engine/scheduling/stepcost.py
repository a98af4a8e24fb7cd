"""How long a step takes for so many rows, learnt from the steps themselves. No torch."""

from __future__ import annotations

FORGET = 0.995
"""Weight that steps keep with each new one: some hundreds count."""
NEAR = 64
"""Rows: what a long step says about a short one counts less."""


class StepTimes:
    """A line through recent steps: a floor, and so much a row. Weighted least squares.

    Nanoseconds. Before steps of different sizes have been seen a row is worth its share of the
    step, which drafts nothing that is not nearly certain.
    """

    def __init__(self) -> None:
        self._w = self._x = self._y = self._xx = self._xy = 0.0

    def note(self, rows: int, spent: int) -> None:
        weight = 1.0 / (NEAR + rows)
        self._w = self._w * FORGET + weight
        self._x = self._x * FORGET + weight * rows
        self._y = self._y * FORGET + weight * spent
        self._xx = self._xx * FORGET + weight * rows * rows
        self._xy = self._xy * FORGET + weight * rows * spent

    @property
    def row(self) -> float:
        """Of one more row."""
        if not self._w:
            return 1.0
        mean, spread = self._x / self._w, self._xx - self._x * self._x / self._w
        if spread <= 1e-6 * self._xx:
            return self._y / self._w / max(mean, 1.0)
        slope = (self._xy - self._x * self._y / self._w) / spread
        return min(max(slope, 0.0), self._y / max(self._x, 1e-9))

    def of(self, rows: int) -> float:
        if not self._w:
            return 1.0
        return self._y / self._w + self.row * (rows - self._x / self._w)
