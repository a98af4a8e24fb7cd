"""Whether engines answer, over time: the objective of which no engine counts anything itself."""

from __future__ import annotations

from collections.abc import Collection

from engine.observing.objectives import REACHABLE, Objective
from engine.snapshot import ObjectiveCount, SourceState
from playbooks.objectives.course import PATIENCE_S, Course


class Presence:
    """Of engines that are one service; counts seconds. `look` as often as they are looked at.

    It answers while one of them does, and does not while nobody answers at any of them. Time of
    which neither is known is in no count: a first miss, which may be a hiccup, an answer that
    nobody can read, a while in which nobody looked.
    """

    def __init__(self, objective: Objective, window_s: float, *, whole: bool = False) -> None:
        self.course = Course((objective,), window_s, whole=whole)
        self._answered = self._silent = 0.0
        self._began: float | None = None
        self._looked = 0.0

    @property
    def looked_at(self) -> bool:
        """By this process."""
        return self._began is not None

    def look(self, states: Collection[SourceState], now: float) -> None:
        """`now` is Unix s."""
        if self._began is None:
            self._began = self._looked = now
        passed, self._looked = now - self._looked, now
        if 0 < passed <= PATIENCE_S:
            if SourceState.LIVE in states:
                self._answered += passed
            elif set(states) == {SourceState.UNREACHABLE}:
                self._silent += passed
        total = round(self._answered + self._silent)
        good = total - round(self._silent)
        self.course.look(now, [ObjectiveCount(REACHABLE, None, good, total, since=self._began)])
