"""The ledger: who holds what. Counted from both sides, so that what nobody owns shows up.

One side is the owners (open requests and what each says it holds), the other the stores (what
is taken out of the pool). Their difference is a leak, whatever lost it. At idle everything
here is zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.request import Request
from engine.scheduling.scheduler import Scheduler

CLASSES = ("requests", "tokenizing", "streams", "texts", "pages", "prefix refs", "slabs")
UNOWNED = "(nobody)"


@dataclass(frozen=True)
class Ledger:
    """Resources held on behalf of requests, by class and owner."""

    held: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """By class; every class is named."""
        return {name: sum(self.held.get(name, {}).values()) for name in CLASSES}

    @property
    def unowned(self) -> dict[str, int]:
        """What is taken and no open request holds: leaks."""
        found = {name: owners.get(UNOWNED, 0) for name, owners in self.held.items()}
        return {name: count for name, count in found.items() if count}

    @property
    def is_zero(self) -> bool:
        return not any(self.totals.values())

    def minus(self, earlier: Ledger) -> dict[str, int]:
        """What has grown (positive) or gone (negative) since, by class."""
        before = earlier.totals
        changes = {name: count - before[name] for name, count in self.totals.items()}
        return {name: change for name, change in changes.items() if change}


def take_ledger(
    open_requests: Mapping[str, Request], texts: Iterable[str], scheduler: Scheduler
) -> Ledger:
    """Every owner by name. On the loop's thread; its cost grows with the open requests."""
    held: dict[str, Counter[str]] = {name: Counter() for name in CLASSES}
    pool = scheduler.pool
    for request in list(open_requests.values()):
        held["requests"][request.id] = 1
        held["streams"][request.id] = not request.stream.closed
        held["tokenizing"][request.id] = request.stamps.queued == 0
    for name in texts:
        held["texts"][name] = 1
    pages, slabs = 0, 0
    for request in scheduler.holders():
        own = len(request.pages) - request.prefix_pages
        held["pages"][request.id], held["prefix refs"][request.id] = own, request.prefix_pages
        held["slabs"][request.id] = request.slab >= 0
        pages, slabs = pages + len(request.pages), slabs + (request.slab >= 0)
    held["pages"][UNOWNED] = pool.references - pages
    held["slabs"][UNOWNED] = pool.slabs - pool.free_slabs - slabs
    return Ledger({name: {k: n for k, n in owners.items() if n} for name, owners in held.items()})


def count_held(open_requests: int, texts: int, scheduler: Scheduler) -> dict[str, int]:
    """The totals of a ledger from the stores alone: its cost does not grow with the open requests.

    `open_requests` have a stream each, and all that have come in a text.
    """
    pool = scheduler.pool
    shared = sum(request.prefix_pages for request in scheduler.holders())
    counts = (
        open_requests, max(open_requests - texts, 0), open_requests, texts,
        pool.references - shared, shared, pool.slabs - pool.free_slabs,
    )  # fmt: skip
    return dict(zip(CLASSES, counts, strict=True))
