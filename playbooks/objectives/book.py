"""The book: a course for each engine that is watched, kept from one process to the next."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder
from engine.snapshot import Snapshot, SourceState
from playbooks.objectives.budget import Budget, budgets
from playbooks.objectives.course import Course
from playbooks.objectives.file import Objectives

SCHEMA = 1
FORGET_AFTER = 2.0
"""Windows after which an engine that was not seen again is no longer kept."""


def kept_path() -> Path:
    return user_folder() / "objectives.json"


class Book:
    """`look` at engines and `save` from one thread, ask for their budgets from any.

    Raises ConfigError where `path` holds something else.
    """

    def __init__(self, objectives: Objectives, path: Path | None = None) -> None:
        self.objectives, self.path = objectives, path or kept_path()
        self._lock = threading.Lock()
        self._now = 0.0
        """Of the latest Snapshot."""
        self._known: dict[tuple[str, ...], tuple[Budget, ...]] = {}
        """Of what was asked for since the last look."""
        self._courses: dict[str, Course] = {
            name: self._course(kept) for name, kept in self._read().items()
        }
        self._seen: set[str] = set()

    def look(self, targets: Mapping[str, Snapshot]) -> None:
        """Only of engines whose numbers are of now."""
        with self._lock:
            for name, snapshot in targets.items():
                if snapshot.source.state is SourceState.LIVE and snapshot.objectives:
                    course = self._courses.setdefault(name, self._course())
                    course.look(snapshot.time, snapshot.objectives)
                    self._seen.add(name)
                    self._now = max(self._now, snapshot.time)
            self._known.clear()

    def budgets(self, names: Iterable[str] | None = None) -> tuple[Budget, ...]:
        """Of these engines as one service; by default of all that this process has seen."""
        with self._lock:
            key = tuple(sorted(self._seen if names is None else self._seen.intersection(names)))
            if key not in self._known:
                courses = [self._courses[name] for name in key]
                self._known[key] = budgets(self.objectives, courses, self._now)
            return self._known[key]

    def kept(self) -> dict[str, tuple[Budget, ...]]:
        """Of every engine there is a course of, as of when it was last seen."""
        with self._lock:
            return {
                name: budgets(self.objectives, [course], course.last)
                for name, course in self._courses.items()
                if course.last is not None
            }

    def save(self) -> None:
        """Raises OSError. What other processes have written of other engines stays."""
        ours = {name: self._courses[name].to_dict() for name in self._seen}
        try:
            others = self._read()
        except ConfigError:
            others = {}
        oldest = time.time() - FORGET_AFTER * self.objectives.window_s
        kept = {n: c for n, c in others.items() if c["rows"] and c["rows"][-1][0] > oldest} | ours
        data = {"schema": SCHEMA, "kind": "objectives", "courses": kept}
        private_folder(self.path.parent)
        replace_file(self.path, json.dumps(data, separators=(",", ":")).encode())

    def _course(self, kept: dict[str, Any] | None = None) -> Course:
        course = Course(self.objectives.each, self.objectives.window_s)
        if kept is not None:
            try:
                course.resume(kept)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise self._broken(error) from error
        return course

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            data = json.loads(self.path.read_bytes())
            if data["kind"] != "objectives":
                raise ValueError(f"a file of kind {data['kind']!r}")
            return dict(data["courses"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ConfigError:
        return ConfigError(f"{self.path}: no kept budgets ({error}); remove it")
