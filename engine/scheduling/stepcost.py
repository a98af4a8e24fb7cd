"""How long a step takes for so many rows, learnt from the steps themselves. No torch."""

from __future__ import annotations

FORGET = 0.995
"""Weight that steps keep with each new one: some hundreds count."""
NEAR = 64
"""Rows: what a long step says about a short one counts less."""


SIZES = 512
"""Rows of a step; longer ones are full of prompts, and the line says what they take."""
RECENT = 500
"""Steps after which what a size took is forgotten: the machine may be another by now."""
LEARN = 0.2
"""Weight of a step in the mean of those of its size."""


class StepTimes:
    """What steps of a size took lately; between sizes, a line through recent steps: a floor, and
    so much a row (weighted least squares).

    Nanoseconds. Kernels work in tiles, so that one row more may cost nothing or a whole tile: what
    was seen comes before the line. Before steps of different sizes have been seen a row is worth
    its share of the step, which drafts nothing that is not nearly certain.
    """

    def __init__(self) -> None:
        self._seen = [(0.0, -RECENT)] * SIZES
        """By rows: the mean, and at which step it was last seen."""
        self._steps = 0
        self._w = self._x = self._y = self._xx = self._xy = 0.0

    def note(self, rows: int, spent: int) -> None:
        self._steps += 1
        before = self._recent(rows)
        mean = float(spent) if before is None else before + LEARN * (spent - before)
        if rows < SIZES:
            self._seen[rows] = (mean, self._steps)
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
        """A step of so many rows."""
        if not self._w:
            return 1.0
        seen = self._recent(rows)
        return self._y / self._w + self.row * (rows - self._x / self._w) if seen is None else seen

    def _recent(self, rows: int) -> float | None:
        mean, when = self._seen[rows] if rows < SIZES else (0.0, -RECENT)
        return mean if when > self._steps - RECENT else None
