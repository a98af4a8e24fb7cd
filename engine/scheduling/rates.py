"""Requests a second to come, as a calendar or a forecast knows them, from a file. No torch.

    time,rate
    2026-12-24T18:00+01:00,2.5
    2026-12-24T19:00+01:00,6

A rate holds from its time on until the next one's. Times are ISO 8601 with an offset, or seconds
since 1970, and rise.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from engine.errors import ConfigError

HEADER = ["time", "rate"]


class RatesAhead:
    """`steps`: (Unix seconds, requests/s), the times rising."""

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        self._times = [at for at, _ in steps]
        self._rates = [rate for _, rate in steps]

    def highest(self, start: float, end: float) -> float:
        """The highest rate between two moments (Unix seconds); 0 where none is known."""
        first = max(bisect_right(self._times, start) - 1, 0)
        return max(self._rates[first : bisect_right(self._times, end)], default=0.0)

    @classmethod
    def load(cls, path: Path) -> RatesAhead:
        """Raises ConfigError with the file and the line."""
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.reader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"rate_schedule: {path} cannot be read ({error})") from error
        if not rows or [name.strip().lower() for name in rows[0]] != HEADER:
            raise ConfigError(f"rate_schedule: {path}: the first line must be time,rate")
        steps: list[tuple[float, float]] = []
        for line, row in enumerate(rows[1:], 2):
            if not row:
                continue
            try:
                at, rate = _step(row)
                if steps and at <= steps[-1][0]:
                    raise ValueError("the time is not after the one before; sort the lines")
            except ValueError as error:
                raise ConfigError(f"rate_schedule: {path}:{line}: {error}") from None
            steps.append((at, rate))
        if not steps:
            raise ConfigError(f"rate_schedule: {path}: has no line below time,rate")
        return cls(steps)


def _step(row: list[str]) -> tuple[float, float]:
    if len(row) != len(HEADER):
        raise ValueError(f"expected a time and a rate, got {len(row)} fields")
    time, rate = (cell.strip() for cell in row)
    try:
        per_second = float(rate)
    except ValueError:
        per_second = math.nan
    if not 0 <= per_second < math.inf:
        raise ValueError(f"the rate {rate!r} is not a number of requests a second")
    return _unix(time), per_second


def _unix(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time; write it like 2026-12-24T18:00+01:00") from None
        if moment.tzinfo is None:
            raise ValueError(f"{text!r} has no offset; write it like {text}+01:00") from None
        return moment.timestamp()
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is no time")
    return seconds
