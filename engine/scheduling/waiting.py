"""The waiting queue: three priorities, ageing, and bounded passing. No torch.

A request's turn is its arrival plus a handicap for its priority, so a high one goes first, and
a low one that has waited the handicap long goes before newer high ones: nothing starves. What
an operation costs does not depend on how many wait.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from engine.request import Priority, Request

HANDICAP_NS = 10_000_000_000
"""So much longer waits each lower priority, at most."""
LOOK_AHEAD = 16
"""Requests behind a blocked head that are looked at in one step."""
PASSES_MAX = 32
"""So many may be admitted past a head that does not fit; then everybody waits for it."""


class WaitingQueue:
    def __init__(self) -> None:
        self._levels: dict[Priority, OrderedDict[str, Request]] = {
            priority: OrderedDict() for priority in Priority
        }

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    def __iter__(self) -> Iterator[Request]:
        """All of them, in the order of their turn."""
        levels = [level for level in self._levels.values() if level]
        if len(levels) < 2:
            return iter(levels[0].values() if levels else ())
        return heapq.merge(*(level.values() for level in levels), key=turn)

    def add(self, request: Request) -> None:
        self._levels[request.priority][request.id] = request

    def put_back(self, request: Request) -> None:
        """A preempted request: it goes before its equals."""
        self.add(request)
        self._levels[request.priority].move_to_end(request.id, last=False)

    def remove(self, request: Request) -> None:
        """Does nothing when it does not wait."""
        self._levels[request.priority].pop(request.id, None)

    def head(self) -> Request | None:
        """Whose turn it is."""
        return next(iter(self), None)

    def oldest_arrival(self) -> int | None:
        """When the longest waiting request was queued (ns): each level is in that order."""
        heads = (next(iter(level.values()), None) for level in self._levels.values())
        return min((h.stamps.queued for h in heads if h is not None), default=None)

    def candidates(self) -> list[Request]:
        """The head and those that may be tried when it does not fit, in turn."""
        found = list(islice(self, LOOK_AHEAD))
        return found[:1] if found and found[0].passed >= PASSES_MAX else found


def turn(request: Request) -> int:
    return request.stamps.queued + request.priority * HANDICAP_NS
