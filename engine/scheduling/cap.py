"""The moving batch cap: a little before the knee, and with the queue. No torch, no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Objective:
    """What the moving cap aims at."""

    least: int
    most: int
    tpot_ms: float | None = None
    """Longest acceptable time between a request's tokens; None: only the queue counts."""
    max_wait_ms: float = 2000.0
    """A request that has waited so long is let in if the objective allows it at all."""


class BatchController:
    """Moves the cap: additive increase, multiplicative decrease, and a band of rest between.

    Up while requests wait at the cap and steps are well below the objective; down at once when
    they are above it, and then no higher than that for a while, so that constant load settles
    instead of swinging; slowly down while the batch is far from full, so that a sudden burst
    does not start from a size that only a queue could justify.
    """

    INTERVAL_NS = 500_000_000
    ABOVE, BELOW = 1.05, 0.90
    """Of the objective: above the one is too slow, below the other there is room."""
    DECREASE = 0.85
    CEILING_NS = 30_000_000_000
    """So long a cap that proved too large is not tried again."""
    SMOOTHING, STAY_SMOOTHING = 0.2, 0.05
    LEAD_S = 60.0
    """A higher rate opens the cap so long before it comes."""
    SPARE = 1.25
    """At a higher rate requests stay longer than those did that were measured."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._step_ms: float | None = None
        self._stay_s: float | None = None
        self.rate_ahead = 0.0
        """Requests/s that will come within LEAD_S, where that is known: the cap opens for them."""
        self._due = 0
        self._ceiling = objective.most
        self._ceiling_until = 0
        self._slack_rounds = 0

    def observe(self, step_ms: float) -> None:
        """A step that decoded took so long."""
        self._step_ms = _smooth(self._step_ms, step_ms, self.SMOOTHING)

    def observe_stay(self, seconds: float) -> None:
        """A request ran so long, from its first step to its end."""
        self._stay_s = _smooth(self._stay_s, seconds, self.STAY_SMOOTHING)

    def decide(
        self, now: int, cap: int, running: int, waiting: int, oldest_wait_ms: float
    ) -> tuple[int, str] | None:
        """A new cap and why, or None to leave it. `now` in monotonic ns."""
        if now < self._due:
            return None
        self._due = now + self.INTERVAL_NS
        if now >= self._ceiling_until:
            self._ceiling = self.objective.most
        wanted, reason = self._wanted(now, cap, running, waiting, oldest_wait_ms)
        wanted = min(max(wanted, self.objective.least), self.objective.most)
        return None if wanted == cap else (wanted, reason)

    def _wanted(
        self, now: int, cap: int, running: int, waiting: int, oldest_wait_ms: float
    ) -> tuple[int, str]:
        goal, step = self.objective.tpot_ms, self._step_ms
        if goal is not None and step is not None and step > goal * self.ABOVE:
            self._ceiling, self._ceiling_until = cap - 1, now + self.CEILING_NS
            self._slack_rounds = 0
            return int(cap * self.DECREASE), f"step {step:.0f} ms is over {goal:.0f} ms"
        least = min(self._rows_ahead(), self._ceiling)
        if cap < least:
            self._slack_rounds = 0
            return least, f"{self.rate_ahead:g} requests/s are due"
        room = goal is None or step is None or step < goal * self.BELOW
        if waiting and running >= cap and room and cap < self._ceiling:
            self._slack_rounds = 0
            late = oldest_wait_ms > self.objective.max_wait_ms
            more = max(2, cap // 4) if late else max(1, cap // 16)
            why = f"oldest has waited {oldest_wait_ms:.0f} ms" if late else f"{waiting} wait"
            return min(cap + more, self._ceiling), why
        if not waiting and running <= cap // 2 and cap > least:
            self._slack_rounds += 1
            if self._slack_rounds >= 10:
                lower = max(cap - max(1, cap // 16), least)
                return lower, f"only {running} run and nobody waits"
        else:
            self._slack_rounds = 0
        return cap, ""

    def _rows_ahead(self) -> int:
        """How many will run at the rate to come: as many as come while one stays."""
        return math.ceil(self.rate_ahead * (self._stay_s or 0.0) * self.SPARE)


def _smooth(before: float | None, value: float, share: float) -> float:
    return value if before is None else before + share * (value - before)
