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

from engine.observing.objectives import REACHABLE, Objective
from playbooks.objectives.course import Course, Stretch, Tally
from playbooks.objectives.file import Objectives

FAST, SLOW = "fast", "slow"
RATES = {FAST: (14.4, 1 / 720, 1 / 8640), SLOW: (6.0, 1 / 120, 1 / 1440)}
"""Spending that is told: so many times as fast as the window allows, over two parts of the window;
of 30 days 1 h and 5 min, and 6 h and 30 min. The shorter one says that it goes on."""
LEAST_MISSED = 5
"""Fewer in the longer part are no course of things, whatever they are a share of."""
LATELY_S = (45.0, 120.0, 360.0)
"""Of what came lately the shortest that says enough: `LEAST_SEEN` requests of a share that is
missed, and of an end that they would have had so many misses at the pace that is told."""
LEAST_SEEN = 20
ENDED = 0.5
"""An alert is over at so many times the rate at which it is told."""
LEAST_EXPECTED, CALM = 8, 1 / 8
"""At the pace that is told it comes by chance once in 300 times that of 8 expected misses there is
one at most."""


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
    over_newest: float | None = None
    """None: too few requests to tell."""

    @property
    def rate(self) -> float | None:
        """What an alert goes by: the smaller of the two. Nothing is taken to be spent while nobody
        looked, nor by few requests. What the newest are spending says whether it goes on before the
        shorter part can."""
        if self.over_long is None or self.over_short is None:
            return None
        if self.missed < LEAST_MISSED:
            return 0.0
        rate = min(self.over_long * self.seen, self.over_short)
        return rate if self.over_newest is None else min(rate, self._proven(self.over_newest))

    def _proven(self, newest: float) -> float:
        """No more than `above` proves that it goes on, an eighth of it that it has ended. Between
        them few requests prove neither, and neither an alert begins nor one ends."""
        part = newest / self.above
        if CALM < part < 1:
            part = ENDED + (1 - ENDED) * (part - CALM) / (1 - CALM)
        return part * self.above

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
    missing: float | None = None
    """Share of the newest requests that missed it, of 45 s or so many as say something."""

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
            "unit": "seconds" if self.of_time else "requests",
            "total": round(self.tally.total),
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
            "missing": self.missing,
        }

    @property
    def of_time(self) -> bool:
        """Its tally is of seconds, not of requests."""
        return self.objective.name == REACHABLE

    @property
    def trouble(self) -> bool:
        return self.gone_s == 0.0 or self.fast.told or self.slow.told


def budgets(objectives: Objectives, courses: Sequence[Course], now: float) -> tuple[Budget, ...]:
    """Of engines that are one service: their requests together."""
    window, begins = objectives.window_s, objectives.begins
    first = min((c.first for c in courses if c.first is not None), default=now)
    start = max(first, now - window) if begins is None else begins
    end = now if begins is None else min(now, begins + window)
    left = None if begins is None else min(window, max(0.0, start + window - now))
    so_far = _together(courses, start, end)
    unseen = max(0.0, end - start - so_far.seen_s)
    parts = {
        kind: (
            _together(courses, now - window * long, now),
            _together(courses, now - window * short, now),
        )
        for kind, (_, long, short) in RATES.items()
    }
    lately = [_together(courses, now - span, now) for span in LATELY_S]
    found = []
    for one in objectives.each:
        bounds = next((b for c in courses if (b := c.bounds_ms(one.name)) is not None), None)
        fast, slow = (_burn(one, kind, window, parts[kind], lately) for kind in (FAST, SLOW))
        missing = _missing(one, lately)
        found.append(_budget(one, window, so_far, bounds, fast, slow, left, unseen, missing))
    return tuple(found)


def _budget(
    objective: Objective, window: float, so_far: Stretch,
    bounds_ms: tuple[float, float | None] | None,
    fast: Burn, slow: Burn, left_s: float | None, unseen_s: float, missing: float | None,
) -> Budget:  # fmt: skip
    tally, part = so_far.of(objective.name), min(1.0, so_far.seen_s / window)
    spent, least, most = (
        None if (rate := _rate(missed, tally.total, objective)) is None else rate * part
        for missed in (tally.missed, tally.least, tally.most)
    )
    gone_s = _gone(spent, slow.over_long, window, left_s is None)
    return Budget(
        objective, window, tally, bounds_ms, spent, least, most, fast, slow, gone_s, left_s,
        unseen_s, missing,
    )  # fmt: skip


def _burn(
    objective: Objective, kind: str, window: float,
    parts: tuple[Stretch, Stretch], lately: Sequence[Stretch],
) -> Burn:  # fmt: skip
    above, long, short = RATES[kind]
    longer = parts[0]
    over_long, over_short = (part.of(objective.name) for part in parts)
    return Burn(
        above,
        window * long,
        window * short,
        _rate(over_long.missed, over_long.total, objective),
        _rate(over_short.missed, over_short.total, objective),
        over_long.missed,
        min(1.0, longer.seen_s / (window * long)),
        _over_newest(objective, above, lately),
    )


def _over_newest(objective: Objective, above: float, lately: Sequence[Stretch]) -> float | None:
    tally = _newest(objective, lately, LEAST_EXPECTED / (objective.allowed * above))
    return None if tally is None else _rate(tally.missed, tally.total, objective)


def _missing(objective: Objective, lately: Sequence[Stretch]) -> float | None:
    tally = _newest(objective, lately, LEAST_SEEN)
    return None if tally is None else tally.missed / tally.total


def _newest(objective: Objective, lately: Sequence[Stretch], requests: float) -> Tally | None:
    """Of the shortest stretch with so many."""
    tallies = (one.of(objective.name) for one in lately)
    return next((tally for tally in tallies if tally.total >= requests), None)


def _together(courses: Sequence[Course], since: float, until: float) -> Stretch:
    """Seen is what one of them saw."""
    several = [course.between(since, until) for course in courses]
    if len(several) == 1:
        return several[0]
    names = several[0].tallies if several else ()
    tallies = {name: sum((one.of(name) for one in several), Tally()) for name in names}
    return Stretch(max((one.seen_s for one in several), default=0.0), tallies)


def _rate(missed: float, total: float, objective: Objective) -> float | None:
    return missed / total / objective.allowed if total > 0 else None


def _gone(spent: float | None, pace: float | None, window: float, rolling: bool) -> float | None:
    if spent is not None and spent >= 1:
        return 0.0
    if spent is None or not pace or (rolling and pace <= 1):
        return None
    return (1 - spent) * window / pace
