"""How many replicas a fleet has: a rule that follows its load, and replicas that are lost."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from engine.errors import ConfigError

TOLERANCE = 0.1
"""A load so near its aim (a share) moves nothing."""


@dataclass(frozen=True)
class Scaling:
    """The rule that cluster autoscalers have: a mean of `aim` outstanding requests a replica."""

    least: int
    most: int
    aim: float
    start_s: float = 120.0
    """From the decision until a replica takes requests."""
    every_s: float = 15.0
    hold_s: float = 300.0
    """Down only to the most that was wanted in this time."""

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ConfigError(
                f"autoscale: expected at least 1 replica and no more than the most, got "
                f"{self.least} to {self.most}"
            )

    def within(self, count: int) -> int:
        """The nearest number of replicas that it allows."""
        return min(max(count, self.least), self.most)


class Autoscaler:
    """A Scaling at work: asked every `every_s`, with what it has seen before."""

    def __init__(self, rule: Scaling) -> None:
        self.rule = rule
        self._wanted: deque[tuple[float, int]] = deque()

    def wanted(self, now_s: float, outstanding: float, size: int) -> int:
        """Replicas that there should be, starting ones counted."""
        rule = self.rule
        ratio = outstanding / (rule.aim * size) if size else math.inf
        near = abs(ratio - 1) <= TOLERANCE
        asked = size if near else math.ceil(outstanding / rule.aim)
        asked = rule.within(asked)
        self._wanted.append((now_s, asked))
        while self._wanted[0][0] < now_s - rule.hold_s:
            self._wanted.popleft()
        return max(asked, min(size, max(count for _, count in self._wanted)))


@dataclass(frozen=True)
class Loss:
    """So many replicas are gone at once; None: for good, unless a rule starts others."""

    count: int
    at_s: float
    """From the start of the period."""
    back_after_s: float | None = None
