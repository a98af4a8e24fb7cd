"""Every request that a check sent: what tails and broken streams are found in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from playbooks.checkup.client_view import broken_of, find_tail
from playbooks.load.record import RequestRecord


@dataclass
class Journal:
    phases: list[list[RequestRecord]] = field(default_factory=list)
    """Requests of one phase were sent at the same load."""

    def next_phase(self) -> None:
        self.phases.append([])

    def add(self, record: RequestRecord) -> None:
        self.phases[-1].append(record)

    def facts(self) -> dict[str, Any]:
        """Of all steps so far; None where nothing was sent, or too little to have a tail."""
        tails = [tail for phase in self.phases if (tail := find_tail(phase)) is not None]
        return {
            "broken": broken_of([record for phase in self.phases for record in phase]),
            "tail": max(tails, key=lambda tail: tail.slow * tail.slow_ms, default=None),
        }
