"""Alerts on a recording: what rules would have told, as fast as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.recording.budgets import promised
from console.recording.file import Recording
from console.recording.line import Moment
from engine.snapshot import Snapshot, Source, SourceState
from playbooks.alerts.burn import with_burn_rules
from playbooks.alerts.file import AlertsFile
from playbooks.alerts.keeper import Keeper, Message
from playbooks.objectives.book import Book
from playbooks.objectives.budget import Budget

LOOK_S = 1.0
"""As a watchkeeper looks."""


class Rehearsal:
    """Of one engine. Iterate once; then `keeper` says what still fires."""

    def __init__(self, recording: Recording, alerts: AlertsFile) -> None:
        self._recording = recording
        self._name = str(recording.about.get("target") or recording.path.stem)
        objectives = promised(recording.about)
        self._book = None if objectives is None else Book(objectives, resumes=False)
        self.rules = alerts if objectives is None else with_burn_rules(alerts, objectives)
        self.keeper = Keeper(self.rules)
        self.looks = 0

    def __iter__(self) -> Iterator[Message]:
        at = self._recording.began
        for moment in self._moments():
            at, self.looks = moment.at, self.looks + 1
            seen = {self._name: _snapshot(moment)}
            yield from self.keeper.look(seen, at, self._budgets(seen, at))
        yield from self.keeper.close(at)

    def _moments(self) -> Iterator[Moment]:
        due, index = 0.0, 0
        while index < len(self._recording.segments):
            for moment in self._recording.moments(index):
                if moment.at >= due:
                    due = moment.at + LOOK_S
                    yield moment
            index += 1

    def _budgets(self, seen: dict[str, Snapshot], now: float) -> dict[str, Sequence[Budget]]:
        if self._book is None:
            return {}
        self._book.look(seen, now)
        live = seen[self._name].source.state is SourceState.LIVE
        read = self._book.budgets if live else self._book.answers
        return {self._name: read((self._name,))}


def _snapshot(moment: Moment) -> Snapshot:
    try:
        return moment.snapshot()
    except ValueError as error:
        return Snapshot(time=moment.at, source=Source(SourceState.UNPARSABLE, reason=str(error)))
