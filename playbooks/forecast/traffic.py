"""The traffic of a period: how many requests a second, and each of them.

Arrivals are made cell by cell (a slot, or an equal part of one with CELL arrivals or so), each from
the seed and its own place: a window in the middle of a week costs no more than it holds, and is the
same one whoever cuts the week how.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from playbooks.forecast.bursts import Bursts
from playbooks.forecast.sizes import Sizes

CELL = 256
"""Expected arrivals of a cell; a slot with fewer than two of these is one cell."""
UNSHARED = 1 << 40
"""Token ids from here on belong to one request."""


class Arrival(NamedTuple):
    at_s: float
    """Seconds from the traffic's start."""
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] | None = None
    """What stands in the prompt's blocks of `Traffic.block_tokens`, the last of which may be cut:
    requests whose prefixes begin alike share as many pages. None: it shares nothing."""


class Traffic(Protocol):
    """One plausible course of a period. The same object gives the same arrivals every time."""

    @property
    def start(self) -> datetime:
        """With its time zone."""

    @property
    def seconds(self) -> float: ...

    @property
    def block_tokens(self) -> int:
        """Of each part of an arrival's prefix."""

    def rate(self, at_s: float) -> float:
        """Requests/s expected at that moment."""

    def arrivals(self, start_s: float, end_s: float) -> Iterator[Arrival]:
        """Those with start_s ≤ at_s < end_s, in order of time."""

    def times(self, start_s: float, end_s: float) -> np.ndarray:
        """float64: when those arrive. It costs a small part of what they cost themselves."""


def prompt_ids(arrival: Arrival, number: int, block_tokens: int) -> list[int]:
    """Token ids for a simulated engine: equal where prefixes are, of request `number` elsewhere."""
    ids: list[int] = []
    for block in arrival.prefix or ():
        ids += [block] * block_tokens
    del ids[arrival.prompt_tokens :]
    return ids + [UNSHARED + number] * (arrival.prompt_tokens - len(ids))


class _Stream(IntEnum):
    """What a cell's random numbers are for."""

    TIMES = 1
    SIZES = 2


@dataclass(frozen=True)
class SlotTraffic:
    """A rate for each slot of `slot_s` seconds, and what the requests of each slot are like."""

    start: datetime
    rates: tuple[float, ...]
    """Requests/s."""
    slot_s: float
    bursts: Bursts
    sizes: Sequence[Sizes]
    """One for each slot."""
    seed: int = 0
    block_tokens: int = 512

    @property
    def seconds(self) -> float:
        return len(self.rates) * self.slot_s

    def rate(self, at_s: float) -> float:
        return self.rates[self._slot(at_s)]

    def arrivals(self, start_s: float, end_s: float) -> Iterator[Arrival]:
        for slot, cell in self._cells(start_s, end_s):
            times = self._times(slot, cell)
            sizes = self.sizes[slot].draw(self._random(slot, cell, _Stream.SIZES), len(times))
            for at, size in zip(times.tolist(), sizes, strict=True):
                if start_s <= at < end_s:
                    yield Arrival(at, *size)

    def times(self, start_s: float, end_s: float) -> np.ndarray:
        cells = [self._times(*cell) for cell in self._cells(start_s, end_s)]
        times = np.concatenate([np.empty(0), *cells])
        return times[np.searchsorted(times, start_s) : np.searchsorted(times, end_s)]

    def _slot(self, at_s: float) -> int:
        return min(max(int(at_s // self.slot_s), 0), len(self.rates) - 1)

    def _cells_of(self, slot: int) -> int:
        return max(int(self.rates[slot] * self.slot_s / CELL), 1)

    def _cells(self, start_s: float, end_s: float) -> Iterator[tuple[int, int]]:
        """(slot, number in it) of those that have a part in that time, and arrivals."""
        end_s = min(end_s, self.seconds)
        if start_s >= end_s:
            return
        for slot in range(self._slot(start_s), self._slot(end_s) + 1):
            length = self.slot_s / self._cells_of(slot)
            for cell in range(self._cells_of(slot)):
                begin = slot * self.slot_s + cell * length
                if self.rates[slot] > 0 and begin < end_s and begin + length > start_s:
                    yield slot, cell

    def _times(self, slot: int, cell: int) -> np.ndarray:
        """float64, rising: when the arrivals of one cell come."""
        rate, length = self.rates[slot], self.slot_s / self._cells_of(slot)
        moments = self.bursts.draw(self._random(slot, cell, _Stream.TIMES), rate * length)
        return slot * self.slot_s + cell * length + moments / rate

    def _random(self, slot: int, cell: int, stream: _Stream) -> np.random.Generator:
        return np.random.default_rng([self.seed, slot, cell, stream])
