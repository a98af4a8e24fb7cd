"""Causes: what a diagnosis finds in the newest of an engine's Snapshots.

Only what Snapshots alone tell: for the other causes `evewatch check` has to measure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from checklists.tomlfile import unknown
from engine.errors import ConfigError
from engine.snapshot import Snapshot
from playbooks.diagnosis.causes import CAUSES, diagnose
from playbooks.diagnosis.evidence import Evidence, from_snapshots

TABLE = "causes"
WINDOW_S = 40.0
LEAST_S = 20.0
"""Of Snapshots, before anything is said."""
EVERY_S = 5.0
Causes = frozenset[str]


def causes_reading(name: str) -> Callable[[Causes], float]:
    """`causes.NAME`: 1 while it is found. Raises ConfigError."""
    _, _, cause = name.partition(".")
    known = [one.name for one in CAUSES]
    if cause not in known:
        raise ConfigError(f"field: {TABLE}.NAME: {unknown('cause', cause, known)}")
    return lambda causes: float(cause in causes)


class Diagnosis:
    """Of one engine; `look` at every live Snapshot."""

    def __init__(self) -> None:
        self._series: deque[tuple[float, Snapshot]] = deque()
        self._found: Causes | None = None
        self._due = 0.0

    def look(self, snapshot: Snapshot, now: float) -> Causes | None:
        """Those found lately; None before enough was seen."""
        self._series.append((now, snapshot))
        while self._series[0][0] < now - WINDOW_S:
            self._series.popleft()
        if now - self._series[0][0] < LEAST_S:
            return None
        if self._found is None or now >= self._due:
            self._due = now + EVERY_S
            facts = from_snapshots([one for _, one in self._series])
            known = [name for name, value in facts.items() if value is not None]
            findings = diagnose(Evidence().having(facts), known)
            self._found = frozenset(one.cause for one in findings if one.is_problem)
        return self._found

    def forget(self) -> None:
        """The engine was not to be seen: what was before is not of now."""
        self._series.clear()
        self._found = None
