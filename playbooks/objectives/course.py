"""What an engine counted over time: sums that never fall, so that any stretch of the past is a
difference of two of them.

A counter that fell began anew, and all that it shows came since. Between looks that lie far apart
something may be missing, unless the engine has counted all along: such time is not seen. The
recent past is kept finely and the rest coarsely, so that a course has a bounded size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

from engine.observing.objectives import Objective
from engine.snapshot import ObjectiveCount

PATIENCE_S = 30.0
"""Looks that are no farther apart miss nothing."""
SAME_START_S = 2.0
"""An engine's start is known to about a second."""
LATELY_S, LATELY_STEP_S = 60.0, 1.0
"""So far back every look is kept, if it is so long after the one before."""
FINE, FINE_STEP, COARSE_STEP = 1 / 100, 1 / 17_280, 1 / 288
"""Of the window: how far back rows are kept finely, and how far apart fine and coarse ones are."""

Row = tuple[float, ...]
"""Unix s, seconds seen so far, and for each objective good, unsure and total so far."""


@dataclass(frozen=True)
class Tally:
    """Requests of a stretch of time."""

    total: float = 0.0
    missed: float = 0.0
    """As estimated, evenly within the bucket of the limit."""
    least: float = 0.0
    most: float = 0.0
    """What `missed` may be."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.total + other.total,
            self.missed + other.missed,
            self.least + other.least,
            self.most + other.most,
        )


@dataclass(frozen=True)
class Stretch:
    seen_s: float
    tallies: dict[str, Tally]

    def of(self, name: str) -> Tally:
        """Nothing where nobody counted it."""
        return self.tallies.get(name, Tally())


class Course:
    """Of one engine, for objectives over a window of `window_s`. `whole`: every look is kept, for
    who asks about the past."""

    def __init__(
        self, objectives: Sequence[Objective], window_s: float, *, whole: bool = False
    ) -> None:
        self._names = tuple(one.name for one in objectives)
        self._limits = {
            one.name: None if one.within_s is None else one.within_s * 1e3 for one in objectives
        }
        self._window_s, self._whole = window_s, whole
        self._rows: list[Row] = []
        self._lately: list[Row] = []
        """The rows of the last minute, each look its own."""
        self._last: dict[str, ObjectiveCount] = {}
        self._resumed = False
        """What was counted last was read from a file: another process saw it."""

    # --- growing --------------------------------------------------------------------------

    def look(self, time: float, counts: Sequence[ObjectiveCount]) -> None:
        """At Unix `time` an engine had counted so much; looks that go back in time are none."""
        known = {one.name: one for one in counts if self._limits.get(one.name, -1) == one.limit_ms}
        if not known or (self._rows and time <= self._rows[-1][0]):
            return
        same = any(_same_life(self._last.get(name), one) for name, one in known.items())
        if self._resumed and not same:
            self._last = {}
        self._push(time, known, same)
        self._last |= known
        self._resumed = False

    def _push(self, time: float, known: dict[str, ObjectiveCount], same: bool) -> None:
        before = self._rows[-1] if self._rows else (time, 0.0, *(0.0,) * 3 * len(self._names))
        passed = time - before[0]
        missed = not same and (self._resumed or passed > PATIENCE_S)
        row = [time, before[1] + (0.0 if missed else passed)]
        for at, name in enumerate(self._names):
            grown = _grown(self._last.get(name), known.get(name))
            row += [old + new for old, new in zip(before[2 + 3 * at :], grown, strict=False)]
        fine = 0.0 if self._whole else self._window_s * FINE_STEP
        if len(self._rows) > 1 and time - self._rows[-2][0] < fine:
            self._rows[-1] = tuple(row)
        else:
            self._rows.append(tuple(row))
        self._keep_lately(tuple(row))
        if not self._whole and len(self._rows) > 2 * (FINE / FINE_STEP + 1 / COARSE_STEP):
            self._rows = _thinned(self._rows, self._window_s)

    def _keep_lately(self, row: Row) -> None:
        lately = self._lately
        if len(lately) > 1 and row[0] - lately[-2][0] < LATELY_STEP_S:
            lately.pop()
        lately.append(row)
        while lately[0][0] < row[0] - LATELY_S:
            del lately[0]

    # --- reading --------------------------------------------------------------------------

    @property
    def first(self) -> float | None:
        """Of the first look that is kept, Unix s."""
        return self._rows[0][0] if self._rows else None

    @property
    def last(self) -> float | None:
        return self._rows[-1][0] if self._rows else None

    def between(self, since: float, until: float) -> Stretch:
        """Linear between two looks."""
        if not self._rows:
            return Stretch(0.0, {name: Tally() for name in self._names})
        start, end = self._at(since), self._at(max(since, until))
        grown = [b - a for a, b in zip(start, end, strict=True)]
        parts = zip(self._names, range(2, len(grown), 3), strict=True)
        return Stretch(
            grown[1], {name: self._tally(name, grown[at : at + 3]) for name, at in parts}
        )

    def bounds_ms(self, name: str) -> tuple[float, float | None] | None:
        """Of the bucket in which the limit lies; None where counts are exact."""
        last = self._last.get(name)
        return None if last is None or last.above_ms is None else (last.above_ms, last.below_ms)

    def _tally(self, name: str, counted: Sequence[float]) -> Tally:
        good, unsure, total = counted
        met = 0.0
        bounds, limit = self.bounds_ms(name), self._limits[name]
        if bounds is not None and bounds[1] is not None and limit is not None:
            met = (limit - bounds[0]) / (bounds[1] - bounds[0])
        return Tally(total, total - good - met * unsure, total - good - unsure, total - good)

    def _at(self, time: float) -> Row:
        lately = self._lately
        rows = lately if lately and time >= lately[0][0] else self._rows
        place = bisect_right(rows, time, key=itemgetter(0))
        if place in (0, len(rows)):
            return rows[max(0, place - 1)]
        a, b = rows[place - 1], rows[place]
        share = (time - a[0]) / (b[0] - a[0])
        return tuple(x + (y - x) * share for x, y in zip(a, b, strict=True))

    # --- keeping --------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        last = {
            name: [one.good, one.unsure, one.total, one.above_ms, one.below_ms, one.since]
            for name, one in self._last.items()
        }
        limits = [self._limits[name] for name in self._names]
        return {"names": self._names, "limits_ms": limits, "rows": list(self._rows), "last": last}

    def resume(self, kept: dict[str, Any]) -> None:
        """Go on from `to_dict` of another process. What it counted against another limit goes.
        Raises ValueError, KeyError or TypeError for what is no such thing."""
        names, limits = list(kept["names"]), list(kept["limits_ms"])
        places = {
            name: 2 + 3 * names.index(name)
            for name in self._names
            if name in names and limits[names.index(name)] == self._limits[name]
        }
        rows: list[Row] = []
        for row in kept["rows"]:
            at = (places.get(name) for name in self._names)
            parts = ((0.0,) * 3 if a is None else row[a : a + 3] for a in at)
            rows.append(tuple(float(v) for v in (*row[:2], *chain.from_iterable(parts))))
        self._last = {
            name: ObjectiveCount(name, self._limits[name], good, total, unsure, above, below, since)
            for name, (good, unsure, total, above, below, since) in kept["last"].items()
            if name in places
        }
        self._rows, self._resumed = rows, True


def _same_life(before: ObjectiveCount | None, now: ObjectiveCount) -> bool:
    """The engine has counted all along, as far as is known for certain."""
    if before is None or before.since is None or now.since is None:
        return False
    return abs(before.since - now.since) < SAME_START_S and now.total >= before.total


def _grown(before: ObjectiveCount | None, now: ObjectiveCount | None) -> tuple[float, float, float]:
    """Good, unsure and total since `before`; what is first seen is where counting begins."""
    if before is None or now is None:
        return 0.0, 0.0, 0.0
    if now.total < before.total:
        return now.good, now.unsure, now.total
    parts = (now.good - before.good, now.unsure - before.unsure, now.total - before.total)
    return max(0, parts[0]), max(0, parts[1]), parts[2]


def _thinned(rows: Sequence[Row], window_s: float) -> list[Row]:
    """Of what is older than the fine past the last row of a slot, and where the window begins."""
    now = rows[-1][0]
    coarse, kept = window_s * COARSE_STEP, []
    for row, following in pairwise(rows):
        fine = row[0] >= now - window_s * FINE
        edge = row[0] // coarse != following[0] // coarse
        if (fine or edge or row is rows[0]) and following[0] > now - window_s:
            kept.append(row)
    return [*kept, rows[-1]]
