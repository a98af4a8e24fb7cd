"""The book: a course for each engine that is watched, kept from one process to the next."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.observing.objectives import REACHABLE
from engine.paths import private_folder, replace_file, user_folder
from engine.snapshot import Snapshot, SourceState
from playbooks.objectives.budget import Budget, budgets
from playbooks.objectives.course import Course
from playbooks.objectives.file import Objectives
from playbooks.objectives.presence import Presence

SCHEMA = 1
FORGET_AFTER = 2.0
"""Windows after which an engine that was not seen again is no longer kept."""
COURSES, PRESENCES = "courses", "presences"
Names = tuple[str, ...]
Kept = dict[str, dict[str, Any]]


def kept_path() -> Path:
    return user_folder() / "objectives.json"


class Book:
    """`look` at engines and `save` from one thread, ask for their budgets from any.

    Begins with what is kept at `path`, unless it `resumes` nothing. Raises ConfigError where that
    is something else.
    """

    def __init__(
        self, objectives: Objectives, path: Path | None = None, *, resumes: bool = True
    ) -> None:
        self.objectives, self.path = objectives, path or kept_path()
        each = objectives.each
        self._of_requests = replace(objectives, each=tuple(o for o in each if o.name != REACHABLE))
        self._of_time = replace(objectives, each=tuple(o for o in each if o.name == REACHABLE))
        self._lock = threading.Lock()
        self._now = self._looked = 0.0
        """Of the latest Snapshot, and of the latest look."""
        self._known: dict[Names, tuple[Budget, ...]] = {}
        """Of what was asked for since the last look."""
        courses, presences = self._read() if resumes else ({}, {})
        self._courses = {name: self._resumed(self._course(), c) for name, c in courses.items()}
        self._presences: dict[Names, Presence] = {}
        if self._of_time.each:
            for name, kept in presences.items():
                self._resumed(self._presence(tuple(name.split("\n"))).course, kept)
        self._targets: set[str] = set()
        self._seen: set[str] = set()
        """Of them, those that have counted requests."""

    def look(
        self,
        targets: Mapping[str, Snapshot],
        now: float | None = None,
        services: Iterable[Iterable[str]] = (),
    ) -> None:
        """Requests are counted of engines whose numbers are of now; who answers, of all, and of
        those that are a service together. `now`: Unix s, by default of the newest Snapshot."""
        with self._lock:
            self._targets |= targets.keys()
            for name, snapshot in targets.items():
                if snapshot.source.state is SourceState.LIVE and snapshot.objectives:
                    course = self._courses.setdefault(name, self._course())
                    course.look(snapshot.time, snapshot.objectives)
                    self._seen.add(name)
                    self._now = max(self._now, snapshot.time)
            self._looked = self._now if now is None else now
            if self._of_time.each:
                for names in {*((name,) for name in targets), *map(_key, services)}:
                    states = {targets[n].source.state for n in names if n in targets}
                    self._presence(names).look(states, self._looked)
            self._known.clear()

    def budgets(self, names: Iterable[str] | None = None) -> tuple[Budget, ...]:
        """Of these engines as one service; by default of all that were looked at."""
        with self._lock:
            key = _key(self._targets if names is None else names)
            if key not in self._known:
                courses = [self._courses[name] for name in key if name in self._seen]
                self._known[key] = (
                    *budgets(self._of_requests, courses, self._now),
                    *self._answers(key, self._looked),
                )
            return self._known[key]

    def answers(self, names: Iterable[str]) -> tuple[Budget, ...]:
        """Of the objective that is of time alone: it is spent while nobody answers, too."""
        return tuple(one for one in self.budgets(names) if one.objective.name == REACHABLE)

    def kept(self) -> dict[str, tuple[Budget, ...]]:
        """Of every engine there is a course of, as of when it was last seen."""
        with self._lock:
            found = {
                name: budgets(self._of_requests, [course], course.last)
                for name, course in self._courses.items()
                if course.last is not None
            }
            for key, presence in self._presences.items():
                if len(key) == 1 and (last := presence.course.last) is not None:
                    found[key[0]] = (*found.get(key[0], ()), *self._answers(key, last))
            return found

    def save(self) -> None:
        """Raises OSError. What other processes have written of other engines stays."""
        ours: Kept = {name: self._courses[name].to_dict() for name in self._seen}
        answers: Kept = {
            "\n".join(k): p.course.to_dict() for k, p in self._presences.items() if p.looked_at
        }
        try:
            others = self._read()
        except ConfigError:
            others = {}, {}
        oldest = time.time() - FORGET_AFTER * self.objectives.window_s
        courses, presences = (
            {n: c for n, c in theirs.items() if c["rows"] and c["rows"][-1][0] > oldest} | own
            for theirs, own in zip(others, (ours, answers), strict=True)
        )
        data = {"schema": SCHEMA, "kind": "objectives", COURSES: courses, PRESENCES: presences}
        private_folder(self.path.parent)
        replace_file(self.path, json.dumps(data, separators=(",", ":")).encode())

    def _answers(self, key: Names, now: float) -> tuple[Budget, ...]:
        presence = self._presences.get(key)
        return () if presence is None else budgets(self._of_time, [presence.course], now)

    def _presence(self, names: Names) -> Presence:
        if names not in self._presences:
            (objective,) = self._of_time.each
            self._presences[names] = Presence(objective, self.objectives.window_s)
        return self._presences[names]

    def _course(self) -> Course:
        return Course(self._of_requests.each, self.objectives.window_s)

    def _resumed(self, course: Course, kept: dict[str, Any]) -> Course:
        try:
            course.resume(kept)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise self._broken(error) from error
        return course

    def _read(self) -> tuple[Kept, Kept]:
        try:
            data = json.loads(self.path.read_bytes())
            if data["kind"] != "objectives":
                raise ValueError(f"a file of kind {data['kind']!r}")
            return dict(data[COURSES]), dict(data.get(PRESENCES, {}))
        except FileNotFoundError:
            return {}, {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ConfigError:
        return ConfigError(f"{self.path}: no kept budgets ({error}); remove it")


def _key(names: Iterable[str]) -> Names:
    return tuple(sorted(names))
