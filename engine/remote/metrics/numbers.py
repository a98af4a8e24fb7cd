"""What engines say, in a form that adds up: ranks of one engine, replicas of a fleet.

`merge` is associative and commutative. Counts add, histograms merge by bucket, a share is
weighted by what it is a share of; nothing is averaged that is a percentile, and a number that
one part does not know is not known of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from engine.remote.metrics.buckets import Buckets
from engine.remote.metrics.owners import Labels

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """The KV cache of one rank, and its requests."""

    name: str
    """The rank, for the operator: "engine 1"."""
    usage: float | None = None
    """0–1"""
    pages: float | None = None
    page_tokens: float | None = None
    free: float | None = None
    bytes: float | None = None
    format: str | None = None
    running: float | None = None
    waiting: float | None = None
    owner: Labels = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    models: frozenset[str] = frozenset()
    running: float | None = None
    waiting: float | None = None
    cap: float | None = None
    cap_max: float | None = None
    pools: tuple[Pool, ...] = ()
    """Sorted."""
    totals: Mapping[str, float] = field(default_factory=dict)
    """Counters since each engine's own start, and on over restarts since we watch."""
    finished: Mapping[str, float] = field(default_factory=dict)
    """Requests ended, by reason, likewise."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """What the counters grew by, a second."""
    buckets: Mapping[str, Buckets] = field(default_factory=dict)
    """Seconds, or tokens; of the recent window, or since the start while nothing newer came."""
    observed: Mapping[str, Buckets] = field(default_factory=dict)
    """Likewise; all that `totals` is of."""

    def merge(self, other: Numbers) -> Numbers:
        return Numbers(
            models=self.models | other.models,
            running=_sum(self.running, other.running),
            waiting=_sum(self.waiting, other.waiting),
            cap=_sum(self.cap, other.cap),
            cap_max=_sum(self.cap_max, other.cap_max),
            pools=tuple(sorted((*self.pools, *other.pools), key=_order)),
            totals=_both(self.totals, other.totals),
            finished=added(self.finished, other.finished),
            rates=_both(self.rates, other.rates),
            buckets=joined(self.buckets, other.buckets),
            observed=joined(self.observed, other.observed),
        )

    @property
    def usage(self) -> float | None:
        """Share of all pages in use, 0–1: weighted by the pools' sizes where all are known."""
        known = [pool.usage for pool in self.pools if pool.usage is not None]
        if not known or len(known) < len(self.pools):
            return None
        sizes = [pool.pages for pool in self.pools if pool.pages]
        if len(sizes) < len(known):
            sizes = [1.0] * len(known)
        share = sum(u * size for u, size in zip(known, sizes, strict=True)) / sum(sizes)
        return min(max(share, min(known)), max(known))  # rounding must not leave the range

    def pool_sum(self, field: Callable[[Pool], float | None]) -> float | None:
        """Of a field over all pools; None when one pool does not know it."""
        values = [field(pool) for pool in self.pools]
        return sum(v for v in values if v is not None) if values and None not in values else None

    def pool_same(self, field: Callable[[Pool], T]) -> T | None:
        """The field's value where all pools agree, else None."""
        values = {field(pool) for pool in self.pools}
        return values.pop() if len(values) == 1 else None


def _order(pool: Pool) -> tuple[str, str]:
    return pool.name, repr(pool)


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _both(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: a[name] + b[name] for name in a if name in b}


def added(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    """Name by name; what one side has not counts as nothing."""
    return {name: a.get(name, 0.0) + b.get(name, 0.0) for name in {**a, **b}}


def joined(a: Mapping[str, Buckets], b: Mapping[str, Buckets]) -> dict[str, Buckets]:
    """Likewise, bucket by bucket."""
    merged = dict(a)
    for name, one in b.items():
        merged[name] = merged[name].merge(one) if name in merged else one
    return merged
