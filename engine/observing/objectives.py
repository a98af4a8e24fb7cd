"""Objectives: how many requests met them, of how many, since an engine began to count.

Counts are read from cumulative histograms. An engine of this process has the limits among the
bounds of its buckets, so its counts are exact; of others the bucket that holds the limit is told
apart, with its bounds: some of the requests in it met the objective, and nobody knows how many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.snapshot import ObjectiveCount

TIMED = ("ttft", "tpot", "e2e")
AVAILABILITY = "availability"
REACHABLE = "reachable"
"""Of time, and not of requests: who watches counts it, not the engine."""
FAILED = frozenset(("error", "failure", "timeout", "rejected"))
CALLED_OFF = frozenset(("abort", "cancelled"))
"""By the caller: neither served nor failed."""
NOT_SAID = "finished"
"""What requests end with where an engine does not say why."""
Rows = Sequence[tuple[float, float]]
"""Upper bounds in seconds, ascending, the last one infinite, and the values up to each."""


@dataclass(frozen=True)
class Objective:
    """A share of the requests is to be served within a time, or served at all."""

    name: str
    """ttft | tpot | e2e | availability | reachable"""
    share: float
    """0–1, of all requests, or of time."""
    within_s: float | None = None
    """None: served, or reachable, at all."""

    @property
    def allowed(self) -> float:
        """The share that may miss it."""
        return 1.0 - self.share


def limits(objectives: Iterable[Objective]) -> dict[str, float]:
    """Seconds by name, of those that have a limit."""
    return {one.name: one.within_s for one in objectives if one.within_s is not None}


def count(
    objectives: Iterable[Objective],
    histograms: Mapping[str, Rows],
    finished: Mapping[str, float],
    since: float | None,
) -> tuple[ObjectiveCount, ...]:
    """One for each objective of which the engine tells enough. `since`: Unix s."""
    found = (
        _served(finished, since)
        if one.within_s is None
        else _within(one.name, one.within_s, histograms.get(one.name, ()), since)
        for one in objectives
        if one.name != REACHABLE
    )
    return tuple(one for one in found if one is not None)


def _within(name: str, within_s: float, rows: Rows, since: float | None) -> ObjectiveCount | None:
    if len(rows) < 2:  # a sum and a count alone say nothing of a limit
        return None
    total = rows[-1][1]
    below = max((row for row in rows if row[0] <= within_s), default=(0.0, 0.0))
    above = next(row for row in rows if row[0] >= within_s)
    between = None
    if below[0] != above[0]:
        between = (below[0] * 1e3, None if math.isinf(above[0]) else above[0] * 1e3)
    return ObjectiveCount(
        name,
        within_s * 1e3,
        good=round(below[1]),
        total=round(total),
        unsure=round(above[1] - below[1]),
        above_ms=None if between is None else between[0],
        below_ms=None if between is None else between[1],
        since=since,
    )


def _served(finished: Mapping[str, float], since: float | None) -> ObjectiveCount | None:
    """Of the requests that ended, those that were answered; what callers called off is neither."""
    if not finished or set(finished) == {NOT_SAID}:
        return None
    failed = sum(n for reason, n in finished.items() if reason in FAILED)
    called_off = sum(n for reason, n in finished.items() if reason in CALLED_OFF)
    total = sum(finished.values()) - called_off
    return ObjectiveCount(
        AVAILABILITY, None, good=round(total - failed), total=round(total), since=since
    )
