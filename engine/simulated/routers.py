"""Who of a fleet gets a request: round robin, least outstanding, or where its prefix is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from engine.simulated.member import Member

OVERLOAD, SLACK = 1.25, 2
"""A replica with more than so many times the mean of outstanding requests, and so many on top,
loses a request that its prefix would lead to it."""


class Router(Protocol):
    reads_load: bool
    """It looks at every replica for each request; one that does not is simulated faster."""
    keeps_prefixes: bool
    """Where a request goes depends on those before it: a part of the fleet is no picture of it."""

    def choose(self, members: Sequence[Member], at: int, prefix: tuple[int, ...]) -> Member:
        """Of those that take requests at `at` (ns), one at least."""
        ...


class RoundRobin:
    reads_load = keeps_prefixes = False

    def __init__(self) -> None:
        self._last = -1

    def choose(self, members: Sequence[Member], at: int, prefix: tuple[int, ...]) -> Member:
        """The next number after the last one's, whoever has come or gone meanwhile."""
        chosen = min(members, key=lambda m: (m.number <= self._last, m.number))
        self._last = chosen.number
        return chosen


class LeastOutstanding:
    """Among equals, who has waited longest for one."""

    reads_load, keeps_prefixes = True, False

    def __init__(self) -> None:
        self._turn = 0
        self._last: dict[int, int] = {}

    def choose(self, members: Sequence[Member], at: int, prefix: tuple[int, ...]) -> Member:
        last = self._last
        chosen = min(members, key=lambda m: (m.outstanding(at), last.get(m.number, 0), m.number))
        self._turn += 1
        last[chosen.number] = self._turn
        return chosen


class PrefixAffinity:
    """Where the longest part of its prefix was sent before, unless too much is there already.

    What has no prefix, or one that nobody has seen, goes to the least outstanding.
    """

    reads_load = keeps_prefixes = True

    def __init__(self) -> None:
        self._least = LeastOutstanding()
        self._seen: dict[int, OrderedDict[int, None]] = {}
        """Of each replica, the beginnings that were sent to it: the least recent first."""

    def choose(self, members: Sequence[Member], at: int, prefix: tuple[int, ...]) -> Member:
        chain = _beginnings(prefix)
        most = OVERLOAD * sum(m.outstanding(at) for m in members) / len(members) + SLACK
        free = [m for m in members if m.outstanding(at) <= most]
        known = {m.number: self._known(m.number, chain) for m in free}
        longest = max(known.values())
        best = [m for m in free if known[m.number] == longest]
        chosen = self._least.choose(best, at, prefix)
        seen = self._seen.setdefault(chosen.number, OrderedDict())
        for beginning in chain:
            seen[beginning] = None
            seen.move_to_end(beginning)
        while len(seen) > chosen.blocks_kept:
            seen.popitem(last=False)
        return chosen

    def _known(self, number: int, chain: list[int]) -> int:
        seen: Collection[int] = self._seen.get(number, ())
        return next((i for i, b in enumerate(chain) if b not in seen), len(chain))


def _beginnings(prefix: tuple[int, ...]) -> list[int]:
    """A number for each beginning of it: of numbers, so the same in every process."""
    chain, so_far = [], 0
    for block in prefix:
        so_far = hash((so_far, block))
        chain.append(so_far)
    return chain


ROUTERS: dict[str, Callable[[], Router]] = {
    "round_robin": RoundRobin,
    "least_outstanding": LeastOutstanding,
    "prefix_affinity": PrefixAffinity,
}
