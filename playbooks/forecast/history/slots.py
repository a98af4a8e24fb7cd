"""Moments with values on a grid of equal slots, and what is missing between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from engine.errors import ConfigError
from playbooks.forecast.bursts import GammaGaps
from playbooks.forecast.history.burstiness import cv_of_counts
from playbooks.forecast.history.history import EARLIEST, LATEST, History

MOST_MISSING = 0.5
"""Of the slots; with more gaps than that nothing is learnt."""
OFF_GRID = 0.1
"""Of a slot: times may be so far off; a day's begin moves with the clocks by less."""


@dataclass(frozen=True)
class Slots:
    name: str
    moments: Sequence[float]
    """Unix seconds at which a slot begins, rising."""
    values: Sequence[float | None]
    """Requests, or requests/s; None: not known."""
    are_rates: bool
    lines: Sequence[int] = ()
    """Of the file, for messages."""


def put_together(slots: Slots, assumptions: Sequence[str] = ()) -> History:
    """Raises ConfigError for times that are on no grid, or too few of them."""
    if len(slots.moments) < 2:
        count = len(slots.moments)
        what = "is empty: it has no counts" if not count else "has one count; two make a slot"
        raise ConfigError(f"history {slots.name}: {what}")
    odd = next((at for at in slots.moments if not EARLIEST <= at <= LATEST), None)
    if odd is not None:
        raise ConfigError(f"history {slots.name}: {odd:.0f} is no time in Unix seconds")
    gaps = Counter(b - a for a, b in pairwise(slots.moments))
    width = min(gaps, key=lambda gap: (-gaps[gap], gap))
    first = slots.moments[0]
    places = [round((moment - first) / width) for moment in slots.moments]
    _check(slots, places, width)
    total = places[-1] + 1
    missing = total - sum(value is not None for value in slots.values)
    if missing > MOST_MISSING * total and missing < total:
        raise ConfigError(
            f"history {slots.name}: {missing} of {total} slots of {_span(width)} are missing; "
            "nothing is learnt from a history that is not known for the most part"
        )
    values: list[float | None] = [None] * total
    for place, value in zip(places, slots.values, strict=True):
        scale = width if slots.are_rates else 1.0
        values[place] = None if value is None else value * scale
    notes = list(assumptions)
    if missing:
        notes.append(f"{missing} of {total} slots of {_span(width)} are missing; they are left out")
    cv = None if slots.are_rates else cv_of_counts(values, width)
    return History(
        slots.name, datetime.fromtimestamp(first, UTC), width, tuple(values),
        bursts=None if cv is None else GammaGaps(cv), assumptions=tuple(notes),
    )  # fmt: skip


def _check(slots: Slots, places: Sequence[int], width: float) -> None:
    """Each moment on a place of its own."""
    before = -1
    for i, (moment, place) in enumerate(zip(slots.moments, places, strict=True)):
        off = abs(moment - slots.moments[0] - place * width)
        if off > OFF_GRID * width or place == before:
            where = f":{slots.lines[i]}" if slots.lines else ""
            raise ConfigError(
                f"history {slots.name}{where}: {datetime.fromtimestamp(moment, UTC):%F %T} UTC "
                f"is not a whole number of slots of {_span(width)} after the first time"
            )
        before = place


def _span(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"
