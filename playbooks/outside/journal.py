"""The requests that a check sent and that were answered or failed: what tails and broken streams
are found in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from playbooks.checkup.answer_sizes import at_once_share, wrong_lengths
from playbooks.checkup.client_view import broken_of, find_tail, refused_share
from playbooks.checkup.pauses import Span, Stood
from playbooks.diagnosis import Broken, Tail
from playbooks.load.record import RequestRecord


@dataclass
class Phase:
    """Requests to one address, sent at the same load."""

    address: str
    records: list[RequestRecord] = field(default_factory=list)
    late: list[Span] = field(default_factory=list)
    """When this machine's own loop slept too long."""


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
        sent: dict[str, list[RequestRecord]] = defaultdict(list)
        for phase in self.phases:
            if phase.records:
                sent[phase.address] += phase.records
        named = len(sent) > 1
        every = [record for records in sent.values() for record in records]
        lengths = {at: wrong_lengths(records) for at, records in sent.items()}
        return {
            "broken": _broken(sent, named),
            "tail": self._tail(named),
            "refused_share": refused_share(every),
            "lengths": None if set(lengths.values()) <= {None} else tuple(
                f"{at}: {line}" if named else line
                for at, lines in lengths.items() for line in lines or ()),
            "at_once_share": at_once_share(every),
        }  # fmt: skip

    def _tail(self, named: bool) -> Tail | None:
        """Of what is found, what holds up most."""
        stood: dict[str, Stood] = defaultdict(Stood)
        for phase in self.phases:
            stood[phase.address].add(phase.records, phase.late)
        found = [(at, one.tail()) for at, one in stood.items()]
        found += [(phase.address, find_tail(phase.records)) for phase in self.phases]
        tails = [replace(tail, at=at if named else "") for at, tail in found if tail is not None]
        return max(tails, key=lambda tail: tail.slow * tail.slow_ms, default=None)


def _broken(sent: Mapping[str, Sequence[RequestRecord]], named: bool) -> Broken | None:
    found = {at: broken for at, records in sent.items()
             if (broken := broken_of(records)) is not None}  # fmt: skip
    if not found:
        return None
    return Broken(
        sum(one.requests for one in found.values()),
        sum(one.streams for one in found.values()),
        tuple(f"{at}: {how}" if named else how for at, one in found.items() for how in one.how),
    )
