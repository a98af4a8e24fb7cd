"""Traffic that came once, request by request, and is to come again just so."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from engine.errors import ConfigError
from playbooks.forecast.history.history import EARLIEST
from playbooks.forecast.history.requests import NO_CALENDAR
from playbooks.forecast.traffic import Arrival
from playbooks.load.traces import Trace

BIN_S = 300.0
"""The rate is that of about so long a time."""


@dataclass(frozen=True)
class GivenTraffic:
    """A Traffic of these arrivals, in order of time."""

    start: datetime
    seconds: float
    given: Sequence[Arrival]
    block_tokens: int = 512
    _times: list[float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_times", [arrival.at_s for arrival in self.given])

    def rate(self, at_s: float) -> float:
        bins = max(round(self.seconds / BIN_S), 1)
        length = self.seconds / bins
        begin = min(max(int(at_s / length), 0), bins - 1) * length
        return (self._place(begin + length) - self._place(begin)) / length

    def arrivals(self, start_s: float, end_s: float) -> Iterator[Arrival]:
        return iter(self.given[self._place(start_s) : self._place(end_s)])

    def times(self, start_s: float, end_s: float) -> np.ndarray:
        return np.array(self._times[self._place(start_s) : self._place(end_s)])

    def _place(self, at_s: float) -> int:
        return bisect_left(self._times, at_s)


def read_traffic(path: Path, unit: str | None = None, time_scale: float = 1.0) -> GivenTraffic:
    """A trace with times that `load` reads, its times multiplied by `time_scale`. Raises
    ConfigError."""
    trace = Trace(path, unit=unit)
    if not trace.has_times:
        raise ConfigError(f"trace {path}: has no arrival times; give a history with --lengths")
    if trace.unit.doubt is not None:
        raise ConfigError(f"trace {path}: {trace.unit.doubt}")
    rows = list(trace.rows())
    first = rows[0].at_s or 0.0
    given = [
        Arrival(((row.at_s or 0.0) - first) * time_scale, row.prompt, row.output, row.blocks)
        for row in rows
    ]
    start = datetime.fromtimestamp(first, UTC) if first >= EARLIEST else NO_CALENDAR
    # A moment more than the last arrival: it is in the period.
    return GivenTraffic(start, given[-1].at_s + 1e-3, given, trace.block_tokens or 512)
