"""Single requests, from a trace or a recording, as a history with their bursts and lengths."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from engine.errors import ConfigError
from playbooks.forecast.history.burstiness import bursts_of
from playbooks.forecast.history.history import EARLIEST, History
from playbooks.forecast.sizes import SampledSizes, Size
from playbooks.load.traces import Trace

SLOT_S = 300.0
BLOCK, BLOCKS = 500, 128
"""Of more requests than that, blocks from all over the history stand for what requests are like."""
NO_CALENDAR = datetime(2024, 1, 1, tzinfo=UTC)
"""A Monday, where such times are taken to begin."""


def read_trace(path: Path, unit: str | None = None) -> History:
    """Any trace with times that `load` reads. Raises ConfigError."""
    trace = Trace(path, unit=unit)
    if not trace.has_times:
        raise ConfigError(f"history {path}: has lengths and no times; give it as --lengths")
    if trace.unit.doubt is not None:
        raise ConfigError(f"history {path}: {trace.unit.doubt}")
    notes = [trace.unit.warning] if trace.unit.warning else []
    rows = ((row.at_s or 0.0, Size(row.prompt, row.output, row.blocks)) for row in trace.rows())
    return of_requests(str(path), rows, trace.block_tokens, notes)


def of_requests(
    name: str,
    rows: Iterable[tuple[float, Size]],
    block_tokens: int | None = None,
    assumptions: Sequence[str] = (),
) -> History:
    """From arrivals in order of time: Unix seconds (or from a start of one's own), and sizes."""
    moments = array("d")
    kept = _Blocks()
    for at, size in rows:
        moments.append(at)
        kept.take(size)
    times = np.frombuffer(moments)
    span = float(times[-1] - times[0]) if len(times) else 0.0
    if span <= 0:
        raise ConfigError(f"history {name}: {len(times)} requests at one time make no rate")
    slot = min(SLOT_S, span)
    whole = int(span // slot)
    counts = np.bincount(((times - times[0]) // slot).astype(int), minlength=whole)[:whole]
    notes = list(assumptions)
    start = datetime.fromtimestamp(times[0], UTC)
    if times[0] < EARLIEST:
        start = NO_CALENDAR
        notes.append("its times are of no calendar: it is taken to begin on a Monday at 0:00")
    return History(
        name,
        start,
        slot,
        tuple(map(float, counts)),
        SampledSizes(kept.rows, Path(name).name),
        block_tokens or 512,
        bursts_of(times),
        assumptions=tuple(notes),
    )


class _Blocks:
    """Every block of rows, or every second, every fourth …, so that BLOCKS at most are kept."""

    def __init__(self) -> None:
        self._blocks: list[list[Size]] = []
        self._taken, self._every = 0, 1

    def take(self, row: Size) -> None:
        number, place = divmod(self._taken, BLOCK)
        self._taken += 1
        if number % self._every:
            return
        if not place:
            if len(self._blocks) == BLOCKS:
                self._blocks, self._every = self._blocks[::2], self._every * 2
                if number % self._every:
                    return
            self._blocks.append([])
        self._blocks[-1].append(row)

    @property
    def rows(self) -> tuple[Size, ...]:
        return tuple(row for block in self._blocks for row in block)
