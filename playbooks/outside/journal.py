"""The requests that a check sent and that were answered or failed: what tails and broken streams
are found in."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from playbooks.checkup.client_view import broken_of, find_tail
from playbooks.diagnosis import Broken, Tail
from playbooks.load.record import RequestRecord


@dataclass
class Phase:
    """Requests to one address, sent at the same load."""

    address: str
    records: list[RequestRecord] = field(default_factory=list)


@dataclass
class Journal:
    phases: list[Phase] = field(default_factory=list)

    def begin(self, address: str) -> Phase:
        """A phase to add to, whatever others are added to meanwhile."""
        self.phases.append(Phase(address))
        return self.phases[-1]

    def facts(self) -> dict[str, Any]:
        """Of all steps so far; None where nothing was sent, or too little to have a tail. Where
        requests went to several addresses, each fact says to which."""
        named = len({phase.address for phase in self.phases if phase.records}) > 1
        return {"broken": self._broken(named), "tail": self._tail(named)}

    def _tail(self, named: bool) -> Tail | None:
        tails = [replace(tail, at=phase.address if named else "") for phase in self.phases
                 if (tail := find_tail(phase.records)) is not None]  # fmt: skip
        return max(tails, key=lambda tail: tail.slow * tail.slow_ms, default=None)

    def _broken(self, named: bool) -> Broken | None:
        sent: dict[str, list[RequestRecord]] = defaultdict(list)
        for phase in self.phases:
            sent[phase.address] += phase.records
        found = {at: broken for at, records in sent.items()
                 if (broken := broken_of(records)) is not None}  # fmt: skip
        if not found:
            return None
        return Broken(
            sum(one.requests for one in found.values()),
            sum(one.streams for one in found.values()),
            tuple(f"{at}: {how}" if named else how for at, one in found.items() for how in one.how),
        )
