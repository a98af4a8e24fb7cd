"""A playbook: named steps with parameters, gates and conditions, read from TOML.

Everything that can be wrong is found before anything runs, with the file and the line: unknown
keys, kinds, parameters, metrics and steps, values out of range, conditions that cannot be read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli

from engine.errors import ConfigError
from playbooks.runs.conditions import Condition, parse
from playbooks.runs.gates import FAIL, OPERATORS, SEVERITIES, Gate
from playbooks.runs.kinds import KINDS
from playbooks.runs.lines import Lines

FOLDER = Path(__file__).parent.parent
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TOP = ("title", "about", "time_budget", "continue_on_fail", "diagnose", "steps")
_STEP = ("id", "kind", "title", "when", "budget", "stop_on_fail", "with", "gates")
_GATE = ("metric", "op", "value", "severity")
_ID = re.compile(r"[a-z][a-z0-9_]*")
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Step:
    id: str
    kind: str
    title: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Parameters, checked; the rest are the kind's defaults."""
    gates: tuple[Gate, ...] = ()
    when: Condition | None = None
    budget_s: float | None = None
    stop_on_fail: bool | None = None
    """None: as the playbook says."""


@dataclass(frozen=True)
class Playbook:
    name: str
    title: str
    steps: tuple[Step, ...]
    about: str = ""
    time_budget_s: float | None = None
    continue_on_fail: bool = True
    diagnose: bool = True
    path: Path | None = None

    @property
    def facts(self) -> set[str]:
        """What its steps are to measure for a diagnosis."""
        return {fact for step in self.steps for fact in KINDS[step.kind].facts}

    @property
    def judged(self) -> set[str]:
        """Metrics that a gate, a condition or the diagnosis looks at."""
        gates = {gate.metric for step in self.steps for gate in step.gates}
        asked = {name for step in self.steps if step.when for _, name in step.when.references}
        return gates | asked - {"verdict"} | (self.facts if self.diagnose else set())


def names() -> list[str]:
    """The playbooks that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if _is_playbook(path))


def _is_playbook(path: Path) -> bool:
    return path.stem != "options"


def load(name_or_path: str | Path) -> Playbook:
    """A shipped one by its name, or a file. Raises ConfigError with the line."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = FOLDER / f"{name_or_path}.toml"
        if str(name_or_path) not in names():
            raise ConfigError(
                f"playbook {name_or_path}: not known; there are {', '.join(names())}, or give a "
                "file that ends in .toml"
            )
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"playbook {path}: cannot be read ({error})") from error
    return read(text, path)


def read(text: str, path: Path) -> Playbook:
    """Raises ConfigError: file, line, what is wrong, what there is."""
    try:
        data = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"playbook {path}: not valid TOML: {error}") from error
    return _Reader(path, Lines(text)).playbook(data)


def seconds(text: str | float) -> float:
    """ "90s", "20m", "1.5h", "500ms", or a number of seconds. Raises ConfigError."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        value = float(text)
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", str(text))
        value = float(match[1]) * UNITS[match[2] or "s"] if match else math.nan
    if not 0 < value < 1e7:
        raise ConfigError(f"{text!r} is not a time; write it like 90s, 20m or 1.5h")
    return value


class _Reader:
    def __init__(self, path: Path, lines: Lines) -> None:
        self._path, self._lines = path, lines

    def wrong(self, what: str, at: Path_, key: str | None = None) -> ConfigError:
        return ConfigError(f"{self._path}:{self._lines.of(at, key)}: {what}")

    def playbook(self, data: dict[str, Any]) -> Playbook:
        self._known(data, _TOP, ())
        rows = data.get("steps")
        if not isinstance(rows, list) or not rows:
            raise self.wrong("a playbook has [[steps]], one at least", ())
        steps: list[Step] = []
        for i, row in enumerate(rows):
            steps.append(self._step(row, i, steps))
        budget = data.get("time_budget")
        return Playbook(
            self._path.stem,
            self._is(data, "title", str, self._path.stem, ()),
            tuple(steps),
            self._is(data, "about", str, "", ()).strip(),
            None if budget is None else self._seconds(budget, (), "time_budget"),
            self._is(data, "continue_on_fail", bool, True, ()),
            self._is(data, "diagnose", bool, True, ()),
            self._path,
        )

    def _step(self, row: Any, index: int, before: list[Step]) -> Step:
        at: Path_ = ("steps", index)
        if not isinstance(row, dict):
            raise self.wrong("a step is a table: [[steps]]", at)
        self._known(row, _STEP, at)
        kind = self._is(row, "kind", str, None, at)
        if kind not in KINDS:
            raise self.wrong(f"kind {kind!r} is not known; known: {', '.join(KINDS)}", at, "kind")
        name = self._is(row, "id", str, kind, at)
        if not _ID.fullmatch(name) or name in (step.id for step in before):
            raise self.wrong(
                f"id {name!r}: expected small letters, digits and _, each id once", at, "id"
            )
        budget = row.get("budget")
        return Step(
            name,
            kind,
            self._is(row, "title", str, KINDS[kind].about, at),
            self._parameters(row.get("with", {}), kind, at),
            self._gates(row.get("gates", []), kind, at),
            self._condition(row, before, at),
            None if budget is None else self._seconds(budget, at, "budget"),
            None if "stop_on_fail" not in row else self._is(row, "stop_on_fail", bool, False, at),
        )

    def _parameters(self, table: Any, kind: str, at: Path_) -> dict[str, Any]:
        inside: Path_ = (*at, "with")
        if not isinstance(table, dict):
            raise self.wrong("with is a table of parameters", at, "with")
        known = KINDS[kind].parameters
        self._known(table, tuple(known), inside, f"parameter of {kind}")
        checked = {}
        for name, value in table.items():
            try:
                checked[name] = known[name].check(value)
            except ConfigError as error:
                raise self.wrong(f"{name}: {error}", inside, name) from None
        return checked

    def _gates(self, rows: Any, kind: str, at: Path_) -> tuple[Gate, ...]:
        if not isinstance(rows, list):
            raise self.wrong("gates is a list of tables", at, "gates")
        return tuple(self._gate(row, kind, (*at, "gates", i)) for i, row in enumerate(rows))

    def _gate(self, row: Any, kind: str, at: Path_) -> Gate:
        if not isinstance(row, dict):
            raise self.wrong("a gate is a table: metric, op, value, severity", at)
        self._known(row, _GATE, at, "key of a gate")
        metric, op = (self._is(row, name, str, None, at) for name in ("metric", "op"))
        known = KINDS[kind].metrics
        if metric not in known:
            raise self.wrong(
                f"metric {metric!r} is none of {kind}; known: {', '.join(known)}", at, "metric"
            )
        if known[metric].startswith("fact:"):
            raise self.wrong(f"metric {metric!r} is no number; the diagnosis reads it", at,
                             "metric")  # fmt: skip
        if op not in OPERATORS:
            raise self.wrong(f"op {op!r} is not one of {', '.join(OPERATORS)}", at, "op")
        severity = self._is(row, "severity", str, FAIL, at)
        if severity not in SEVERITIES:
            raise self.wrong(f"severity {severity!r} is neither fail nor warn", at, "severity")
        value = row.get("value")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"value: expected a number, got {value!r}", at, "value")
        if not math.isfinite(value):
            raise self.wrong("value: expected a finite number", at, "value")
        return Gate(metric, op, float(value), severity)

    def _condition(self, row: dict[str, Any], before: list[Step], at: Path_) -> Condition | None:
        if "when" not in row:
            return None
        try:
            condition = parse(self._is(row, "when", str, None, at))
        except ConfigError as error:
            raise self.wrong(str(error), at, "when") from None
        for name, result in condition.references:
            step = next((step for step in before if step.id == name), None)
            if step is None:
                raise self.wrong(f"when: {name!r} is no step before this one", at, "when")
            if result != "verdict" and result not in KINDS[step.kind].metrics:
                raise self.wrong(f"when: {result!r} is no metric of {step.kind}", at, "when")
        return condition

    # --- values ------------------------------------------------------------------------

    def _known(
        self, table: Mapping[str, Any], known: tuple[str, ...], at: Path_, what: str = "key"
    ) -> None:
        for key in table:
            if key not in known:
                raise self.wrong(
                    f"unknown {what} {key!r}; known: {', '.join(known) or 'none'}", at, key
                )

    def _is(self, table: Mapping[str, Any], key: str, kind: type, default: Any, at: Path_) -> Any:
        value = table.get(key, default)
        if type(value) is not kind:
            wanted = {str: "a text", bool: "true or false"}[kind]
            problem = "is missing" if key not in table else f"expected {wanted}, got {value!r}"
            raise self.wrong(f"{key}: {problem}", at, key)
        return value

    def _seconds(self, value: Any, at: Path_, key: str) -> float:
        try:
            return seconds(value)
        except ConfigError as error:
            raise self.wrong(f"{key}: {error}", at, key) from None
