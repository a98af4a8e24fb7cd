"""The ledger: who holds what. Counted from both sides, so that what nobody owns shows up.

One side is the owners (open requests and what each says it holds), the other the stores (what
is taken out of the pool). Their difference is a leak, whatever lost it. At idle everything
here is zero.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.loop import Loop

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


def take_ledger(loop: Loop) -> Ledger:
    """On the engine's thread."""
    held: dict[str, Counter[str]] = {name: Counter() for name in CLASSES}
    scheduler, pool = loop.scheduler, loop.scheduler.pool
    for request in list(loop.open.values()):
        held["requests"][request.id] = 1
        held["streams"][request.id] = not request.stream.closed
        held["tokenizing"][request.id] = request.stamps.queued == 0
    for name in loop.texts:
        held["texts"][name] = 1
    pages, slabs = 0, 0
    for request in [*scheduler.running.values(), *scheduler.policy.kept()]:
        own = len(request.pages) - request.prefix_pages
        held["pages"][request.id], held["prefix refs"][request.id] = own, request.prefix_pages
        held["slabs"][request.id] = request.slab >= 0
        pages, slabs = pages + len(request.pages), slabs + (request.slab >= 0)
    held["pages"][UNOWNED] = pool.references - pages
    held["slabs"][UNOWNED] = pool.slabs - pool.free_slabs - slabs
    return Ledger({name: {k: n for k, n in owners.items() if n} for name, owners in held.items()})
