"""Budgets of a recording: what its engine had counted, look by look, and what was left of it at
any moment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from console.recording.file import Recording
from engine.observing.objectives import REACHABLE
from engine.snapshot import Snapshot, SourceState
from playbooks.objectives.budget import Budget, budgets
from playbooks.objectives.course import Course
from playbooks.objectives.file import NAMES, Objectives
from playbooks.objectives.presence import Presence

KEY = "objectives"
"""Of the first line of a recording."""
MOST_LOOKS = 10_000
LEAST_STEP_S = 1.0


def promised(about: dict[str, Any]) -> Objectives | None:
    """By the engine's operator; None where nothing was, or nobody can read what."""
    from checklists.tomlfile import adapter

    try:
        found: Objectives = adapter(Objectives).validate_json(json.dumps(about.get(KEY)))
    except ValueError:
        return None
    sound = all(one.name in NAMES and 0 < one.share < 1 for one in found.each)
    return found if sound and 0 < found.window_s < 1e9 else None


def looks(recording: Recording, step_s: float) -> Iterator[tuple[float, Snapshot]]:
    """When, and a Snapshot of its source and counts alone, so far apart at least."""
    due, index = 0.0, 0
    while index < len(recording.segments):
        for moment in recording.moments(index):
            if moment.at >= due:
                due = moment.at + step_s
                yield moment.at, moment.counts()
        index += 1


class RecordedBudgets:
    """`read` once, on a thread; then `at` any moment, from any."""

    def __init__(self, recording: Recording, objectives: Objectives) -> None:
        self._recording, self._objectives = recording, objectives
        self._courses: Sequence[Course] = ()

    def read(self) -> None:
        """Of all of it, every second or, of a long one, ten thousand times."""
        promised, recording = self._objectives, self._recording
        course = Course(promised.each, promised.window_s, whole=True)
        answers = self._presence()
        step_s = max(LEAST_STEP_S, (recording.ended - recording.began) / MOST_LOOKS)
        for at, seen in looks(recording, step_s):
            if seen.source.state is SourceState.LIVE:
                course.look(seen.time, seen.objectives)
            if answers is not None:
                answers.look({seen.source.state}, at)
        self._courses = [course, *([answers.course] if answers is not None else [])]

    def at(self, now: float) -> tuple[Budget, ...]:
        """Unix s. None before it is read."""
        return budgets(self._objectives, self._courses, now) if self._courses else ()

    def _presence(self) -> Presence | None:
        each = self._objectives.each
        one = next((one for one in each if one.name == REACHABLE), None)
        return None if one is None else Presence(one, self._objectives.window_s, whole=True)
