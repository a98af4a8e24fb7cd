"""The unit of a trace's times: told by whoever runs it, by the file, or judged by what traffic is.

Formats document a unit, and files that claim the format have another. A documented unit that makes
plausible traffic stands. Otherwise the one unit that does is taken, with a warning; where several
do, it must be said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
PLAUSIBLE_RATE = (0.005, 200.0)
"""Requests/s, mean: from one in three minutes to a large fleet's."""
BURSTS = 10.0
"""The usual gap between two requests may say a rate so many times higher or lower."""
LEAST_SPAN_S = 1.0
"""Nobody keeps a trace of less."""
SAMPLE = 1000
"""Rows that are looked at."""
_EPOCH = (1e9, 1e11)
"""Unix seconds of the years 2001 to 5138: an absolute time shows its unit by its size."""


@dataclass(frozen=True)
class TimeUnit:
    name: str
    warning: str | None = None
    """It is not the one that the format documents, or the traffic is odd."""
    doubt: str | None = None
    """Why it must be said; then `name` is only the documented one."""

    @property
    def seconds(self) -> float:
        return SECONDS[self.name]


def judge(times: Sequence[float], documented: str) -> TimeUnit:
    """The unit of `times`, the first ones of a file, whose format documents one."""
    span = max(times) - min(times) if times else 0.0
    if span <= 0:
        return TimeUnit(documented)
    for name, factor in SECONDS.items():
        if all(_EPOCH[0] <= at * factor < _EPOCH[1] for at in times):
            return TimeUnit(name)
    rates = {name: (len(times) - 1) / (span * factor) for name, factor in SECONDS.items()}
    gap = median(b - a for a, b in pairwise(sorted(times)) if b > a)
    usual = {name: 1 / (gap * factor) for name, factor in SECONDS.items()}
    low, high = PLAUSIBLE_RATE
    likely = [
        name
        for name, rate in rates.items()
        if span * SECONDS[name] >= LEAST_SPAN_S
        and low <= rate <= high
        and low / BURSTS <= usual[name] <= high * BURSTS
    ]
    if documented in likely:
        return TimeUnit(documented)
    if likely and rates[documented] < low <= usual[documented] <= high:  # a long pause in it
        likely.append(documented)
    odd = f"{len(times)} rows in {_short(span * SECONDS[documented])} s"
    if len(likely) == 1:
        (name,) = likely
        return TimeUnit(
            name,
            f"its times are read as {name}, {_short(span * SECONDS[name])} s of traffic: as "
            f"{documented} they would be {odd}; --time-unit says otherwise",
        )
    if likely:
        return TimeUnit(
            documented,
            doubt=f"the unit of its times is doubtful: as {documented} they are {odd}, and "
            f"one of {', '.join(likely)} would do; say it with --time-unit",
        )
    return TimeUnit(
        documented,
        f"its times are read as {documented}, which is {odd}; --time-unit says otherwise",
    )


def _short(seconds: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(seconds)))
    return f"{seconds:,.{digits}f}" if digits < 12 else f"{seconds:g}"
