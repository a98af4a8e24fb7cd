"""A past: how many requests came in each slot of time, and, where that is known, what they were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

import numpy as np

from engine.errors import ConfigError
from playbooks.forecast.bursts import Bursts
from playbooks.forecast.sizes import Sizes

HOUR_S = 3600.0
LONGEST_S = 86_400.0
"""Of a slot: a day. What is counted by the week says nothing about a day."""
EARLIEST, LATEST = 1e8, 7.25e9
"""Unix seconds of 1973 and of 2199; what lies outside is counted from another time."""
MOST_RATE = 1e5
"""Requests/s; more of them are another unit, or another column."""

LATENCIES = tuple(
    (name, quantile)
    for name in ("ttft_ms", "tpot_ms", "e2e_ms")
    for quantile in ("p50", "p90", "p99")
)


@dataclass(frozen=True)
class History:
    """Raises ConfigError where nothing can be learnt from it: no counts, or none above zero."""

    name: str
    start: datetime
    """Of the first slot, with a time zone."""
    slot_s: float
    counts: tuple[float | None, ...]
    """Requests of each slot; None: not known."""
    sizes: Sizes | None = None
    block_tokens: int = 512
    """Of each part of a size's prefix."""
    bursts: Bursts | None = None
    latencies: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Of each slot, in milliseconds, by metric and quantile ("ttft_ms p50"): where requests were
    watched, and not only counted."""
    assumptions: tuple[str, ...] = ()
    """What had to be assumed to read it, in sentences."""

    def __post_init__(self) -> None:
        known = [count for count in self.counts if count is not None]
        if not known:
            raise ConfigError(f"history {self.name}: is empty: it has no counts")
        if not any(known):
            raise ConfigError(f"history {self.name}: all its counts are 0: nothing to learn from")
        if max(known) > MOST_RATE * self.slot_s:
            raise ConfigError(
                f"history {self.name}: {max(known):g} requests in {self.slot_s:g} s: at most "
                f"{MOST_RATE:,.0f} requests/s are believed; is it another column or unit?"
            )
        if self.slot_s > LONGEST_S:
            raise ConfigError(
                f"history {self.name}: its counts are {self.slot_s / 3600:g} hours apart; give "
                "counts by the day at least, by the hour or finer if there are any"
            )

    @property
    def seconds(self) -> float:
        return len(self.counts) * self.slot_s

    @property
    def end(self) -> datetime:
        return datetime.fromtimestamp(self.start.timestamp() + self.seconds, UTC)

    def hours(self, whole: float = 0.0) -> Hours:
        """By the hour: what is finer is put together, what is coarser is taken as even. `whole`:
        Unix seconds at which an hour begins; by some clocks that is half past another's."""
        begin = self.start.timestamp()
        spans = ((begin + i * self.slot_s, count) for i, count in enumerate(self.counts))
        known = ((at, n) for at, n in spans if n is not None)
        return Hours.of_slots(known, self.slot_s, whole)


@dataclass(frozen=True)
class Hours:
    """Rates by the hour."""

    begin_s: float
    """Of the first hour, Unix seconds."""
    rates: np.ndarray
    """float [hours]: requests/s; NaN where not known."""

    @classmethod
    def of_slots(
        cls, slots: Iterable[tuple[float, float]], slot_s: float, whole: float = 0.0
    ) -> Hours:
        """`slots`: (Unix seconds of the begin, requests). A slot of less than an hour counts for
        the hour that its middle lies in; an hour of which less than half is known is not known,
        unless none is known better."""
        moments, counts = (np.array(column, float) for column in zip(*slots, strict=True))
        if slot_s > HOUR_S:
            parts = round(slot_s / HOUR_S)
            moments = (moments[:, None] + np.arange(parts) * slot_s / parts).ravel()
            counts, slot_s = np.repeat(counts / parts, parts), slot_s / parts
        hours = ((moments + slot_s / 2 - whole) // HOUR_S).astype(int)
        places = hours - hours[0]
        known_s = np.bincount(places) * slot_s
        with np.errstate(invalid="ignore"):
            rates = np.bincount(places, counts) / known_s
        enough = min(HOUR_S / 2, float(known_s.max()))
        return cls(whole + float(hours[0]) * HOUR_S, np.where(known_s >= enough, rates, np.nan))

    @property
    def start(self) -> datetime:
        return datetime.fromtimestamp(self.begin_s, UTC)

    def at(self, moment: float) -> float:
        """Requests/s of the hour that holds a Unix time; NaN where not known."""
        place = int((moment - self.begin_s) // HOUR_S)
        return float(self.rates[place]) if 0 <= place < len(self.rates) else math.nan


def hours_of_week(start: datetime, count: int, zone: tzinfo) -> np.ndarray:
    """int [count]: the hour of the week (Monday 0:00 is 0) by the clocks of `zone` in each of
    `count` hours from `start` on; by their middle, as some zones are half an hour off."""
    begin = start.timestamp() + HOUR_S / 2
    moments = (datetime.fromtimestamp(begin + i * HOUR_S, zone) for i in range(count))
    return np.array([moment.weekday() * 24 + moment.hour for moment in moments], int)
