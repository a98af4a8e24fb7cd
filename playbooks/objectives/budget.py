"""Budgets: of what an objective allows to be missed over a window, how much is spent, how fast it
goes, and when it is gone. Arithmetic alone.

A budget is the share that may be missed of the requests of the whole window. While the window has
not passed, the rest of it is taken to bring as many as what was seen: a window seen for a tenth
with twice the misses that are allowed has spent a fifth. Spending at 1 × lasts just as long as
the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.observing.objectives import Objective
from playbooks.objectives.course import Course, Tally
from playbooks.objectives.file import Objectives

FAST, SLOW = "fast", "slow"
RATES = {FAST: (14.4, 1 / 720, 1 / 8640), SLOW: (6.0, 1 / 120, 1 / 1440)}
"""Spending that is told: so many times as fast as the window allows, over two parts of the window;
of 30 days 1 h and 5 min, and 6 h and 30 min. The shorter one says that it goes on."""
LEAST_MISSED = 5
"""Fewer in the longer part are no course of things, whatever they are a share of."""


@dataclass(frozen=True)
class Burn:
    """Spending over two parts of the window, in times of what would last the window."""

    above: float
    """From here on it is told."""
    long_s: float
    short_s: float
    over_long: float | None
    """None: no request was counted."""
    over_short: float | None
    missed: float
    """In the longer part."""
    seen: float
    """Share of the longer part that was seen."""

    @property
    def rate(self) -> float | None:
        """What an alert goes by: the smaller of the two. Nothing is taken to be spent while nobody
        looked, nor by few requests."""
        if self.over_long is None or self.over_short is None:
            return None
        if self.missed < LEAST_MISSED:
            return 0.0
        return min(self.over_long * self.seen, self.over_short)

    @property
    def told(self) -> bool:
        return self.rate is not None and self.rate > self.above


@dataclass(frozen=True)
class Budget:
    """Of one objective, at one moment."""

    objective: Objective
    window_s: float
    tally: Tally
    """Of the window so far."""
    bounds_ms: tuple[float, float | None] | None
    """Of the bucket in which the limit lies; None: the counts are exact."""
    spent: float | None
    """Share of the window's budget, 1 is all of it; None: no request was counted."""
    least: float | None
    most: float | None
    """What `spent` may be."""
    fast: Burn
    slow: Burn
    gone_s: float | None
    """Until it is gone at the pace of the last while; 0: it is. None: not at this pace, or it is
    not known."""
    left_s: float | None
    """Of the window; None where it is always the last `window_s` seconds."""
    unseen_s: float
    """Of the window so far, in which nobody looked and the engine did not count on."""

    @property
    def pace(self) -> float | None:
        """Spending over the last while, in times of what would last the window."""
        return self.slow.over_long

    @property
    def lasts(self) -> bool | None:
        """To the end of the window, at this pace; None: not known."""
        if self.spent is None or self.pace is None:
            return None
        return self.gone_s is None or (self.left_s is not None and self.gone_s >= self.left_s)

    def to_dict(self) -> dict[str, Any]:
        """For a report."""
        return {
            "objective": self.objective.name,
            "within_s": self.objective.within_s,
            "share": self.objective.share,
            "window_s": self.window_s,
            "requests": round(self.tally.total),
            "missed": round(self.tally.missed),
            "spent": self.spent,
            "spent_least": self.least,
            "spent_most": self.most,
            "pace": self.pace,
            "fast": self.fast.rate,
            "slow": self.slow.rate,
            "gone_s": self.gone_s,
            "lasts": self.lasts,
            "unseen_s": self.unseen_s,
        }

    @property
    def trouble(self) -> bool:
        return self.gone_s == 0.0 or self.fast.told or self.slow.told


def budgets(objectives: Objectives, courses: Sequence[Course], now: float) -> tuple[Budget, ...]:
    """Of engines that are one service: their requests together."""
    return tuple(_budget(one, objectives, courses, now) for one in objectives.each)


def _budget(
    objective: Objective, objectives: Objectives, courses: Sequence[Course], now: float
) -> Budget:
    window = objectives.window_s
    first = min((c.first for c in courses if c.first is not None), default=now)
    start = max(first, now - window) if objectives.begins is None else objectives.begins
    end = now if objectives.begins is None else min(now, objectives.begins + window)
    tally, seen = _counted(courses, objective.name, start, end)
    part = min(1.0, seen / window)

    def spent(missed: float) -> float | None:
        rate = _rate(missed, tally.total, objective)
        return None if rate is None else rate * part

    fast, slow = (_burn(objective, kind, window, courses, now) for kind in (FAST, SLOW))
    left = None if objectives.begins is None else min(window, max(0.0, start + window - now))
    return Budget(
        objective,
        window,
        tally,
        next((b for c in courses if (b := c.bounds_ms(objective.name)) is not None), None),
        spent(tally.missed),
        spent(tally.least),
        spent(tally.most),
        fast,
        slow,
        _gone(spent(tally.missed), slow.over_long, window, left is None),
        left,
        max(0.0, end - start - seen),
    )


def _burn(
    objective: Objective, kind: str, window: float, courses: Sequence[Course], now: float
) -> Burn:
    above, long, short = RATES[kind]
    lately, seen = _counted(courses, objective.name, now - window * long, now)
    now_on, _ = _counted(courses, objective.name, now - window * short, now)
    return Burn(
        above,
        window * long,
        window * short,
        _rate(lately.missed, lately.total, objective),
        _rate(now_on.missed, now_on.total, objective),
        lately.missed,
        min(1.0, seen / (window * long)),
    )


def _counted(
    courses: Sequence[Course], name: str, since: float, until: float
) -> tuple[Tally, float]:
    """Of all together; seen is what one of them saw."""
    stretches = [course.between(since, until) for course in courses]
    tally = sum((one.tallies[name] for one in stretches), Tally())
    return tally, max((one.seen_s for one in stretches), default=0.0)


def _rate(missed: float, total: float, objective: Objective) -> float | None:
    return missed / total / objective.allowed if total > 0 else None


def _gone(spent: float | None, pace: float | None, window: float, rolling: bool) -> float | None:
    if spent is not None and spent >= 1:
        return 0.0
    if spent is None or not pace or (rolling and pace <= 1):
        return None
    return (1 - spent) * window / pace
