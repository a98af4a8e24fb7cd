"""Histograms as exporters write them: cumulative counts up to upper bounds.

Percentiles are never averaged: what merges is the counts, bucket by bucket.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from engine.snapshot import Percentiles, TokenCounts

P90_FROM, P99_FROM = 10, 100
"""Observations below which no P90 or P99 is given, as for the embedded engine."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Frozen. Raises ValueError when the parts are no histogram."""

    bounds: tuple[float, ...]
    """Upper bounds, ascending, the last one infinite."""
    counts: tuple[float, ...]
    """Observations at or below each bound."""
    sum: float | None = None

    def __post_init__(self) -> None:
        if not self.bounds or self.bounds[-1] != math.inf or len(self.bounds) != len(self.counts):
            raise ValueError("a histogram needs counts up to +Inf")
        if any(low >= high for low, high in zip(self.bounds, self.bounds[1:], strict=False)):
            raise ValueError("the bounds of a histogram must ascend")
        steps = zip((0.0, *self.counts), self.counts, strict=False)
        if not all(math.isfinite(high) and low <= high for low, high in steps):
            raise ValueError("the counts of a histogram must not fall")

    @property
    def count(self) -> float:
        return self.counts[-1]

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.sum is not None and self.count > 0 else None

    def at(self, bounds: tuple[float, ...]) -> tuple[float, ...]:
        """The counts at some of the bounds."""
        return tuple(self.counts[bisect_left(self.bounds, bound)] for bound in bounds)

    def merge(self, other: Buckets) -> Buckets:
        """Both together, at the bounds that both have: exact, associative, commutative."""
        bounds = self._shared(other)
        counts = tuple(a + b for a, b in zip(self.at(bounds), other.at(bounds), strict=True))
        return Buckets(bounds, counts, _plus(self.sum, other.sum))

    def since(self, earlier: Buckets) -> Buckets:
        """What came after `earlier`; all of it when the counts fell: a restart."""
        bounds = self._shared(earlier)
        now, then = self.at(bounds), earlier.at(bounds)
        if any(a < b for a, b in zip(now, then, strict=True)):
            return self
        grown = (a - b for a, b in zip(now, then, strict=True))
        counts = accumulate(grown, max)  # a page read while it is written may lag in the middle
        change = None
        if self.sum is not None and earlier.sum is not None:
            change = max(0.0, self.sum - earlier.sum)
        return Buckets(bounds, tuple(counts), change)

    def _shared(self, other: Buckets) -> tuple[float, ...]:
        if self.bounds == other.bounds:
            return self.bounds
        theirs = set(other.bounds)
        return tuple(bound for bound in self.bounds if bound in theirs)

    def quantile(self, q: float) -> float | None:
        """The value below which a share `q` lies, linear within a bucket.

        The first bucket's bound when it lies there: it is then an upper limit, see
        `Percentiles.floor`. None beyond the last finite bound, where only a lower limit is known,
        and when nothing was observed.
        """
        if self.count <= 0:
            return None
        rank = q * self.count
        index = next(i for i, count in enumerate(self.counts) if count >= rank and count > 0)
        if self.bounds[index] == math.inf:
            return None
        if index == 0:
            return self.bounds[0]
        low, below = self.bounds[index - 1], self.counts[index - 1]
        share = (rank - below) / (self.counts[index] - below)
        return low + (self.bounds[index] - low) * min(1.0, max(0.0, share))

    def percentiles_ms(self) -> Percentiles:
        """From seconds to milliseconds."""
        n = round(self.count)
        if n <= 0:
            return Percentiles()
        finite = [bound for bound in self.bounds if bound != math.inf]
        return Percentiles(
            p50=_ms(self.quantile(0.5)),
            p90=_ms(self.quantile(0.9)) if n >= P90_FROM else None,
            p99=_ms(self.quantile(0.99)) if n >= P99_FROM else None,
            mean=_ms(self.mean),
            n=n,
            floor=_ms(finite[0]) if finite else None,
            ceiling=_ms(finite[-1]) if finite else None,
        )

    def token_counts(self) -> TokenCounts | None:
        """Of a histogram of tokens; None while nothing was observed."""
        n = round(self.count)
        if n <= 0:
            return None
        return TokenCounts(
            p50=self.quantile(0.5),
            p90=self.quantile(0.9) if n >= P90_FROM else None,
            mean=self.mean,
            n=n,
            edges=tuple(bound for bound in self.bounds if bound != math.inf),
            counts=self.apart,
        )

    @property
    def apart(self) -> tuple[int, ...]:
        """Observations in each bucket; not cumulative."""
        below = (0.0, *self.counts[:-1])
        return tuple(round(b - a) for a, b in zip(below, self.counts, strict=True))


def merged(several: Iterable[Buckets]) -> Buckets | None:
    """All together; None of none."""
    total: Buckets | None = None
    for one in several:
        total = one if total is None else total.merge(one)
    return total


def from_samples(
    bounds: dict[float, float], total: float | None, observed: float | None
) -> Buckets | None:
    """From the `_bucket`, `_sum` and `_count` of one series; None when they do not fit together."""
    counts = dict(bounds)
    if math.inf not in counts and observed is not None:
        counts[math.inf] = observed
    ordered = sorted(counts)
    sound = total is not None and math.isfinite(total)
    try:
        return Buckets(tuple(ordered), tuple(counts[b] for b in ordered), total if sound else None)
    except ValueError:
        return None


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3
