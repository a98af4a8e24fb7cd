"""A playbook: named steps with parameters, gates and conditions, read from TOML.

Everything that can be wrong is found before anything runs, with the file and the line: unknown
keys, types, parameters, metrics and steps, values out of range, conditions that cannot be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from checklists.tomlfile import STRICT, Location, TomlFile
from engine.errors import ConfigError
from playbooks.runs.conditions import Condition, parse
from playbooks.runs.gates import Gate
from playbooks.steps.durations import seconds
from playbooks.steps.fields import Reads
from playbooks.steps.metrics import FACT, RENAMED
from playbooks.steps.registry import STEP_TYPES, StepType

FOLDER = Path(__file__).parent.parent
_ID = re.compile(r"[a-z][a-z0-9_]*")
Duration = Annotated[Any, Reads("playbooks.steps.durations:seconds")]


# --- the file ------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateToml:
    """A metric of the step, an operator and a number."""

    __pydantic_config__ = STRICT
    metric: str
    op: Literal["<", "<=", ">", ">=", "==", "!="]
    value: float
    severity: Literal["fail", "warn"] = "fail"


@dataclass(frozen=True)
class StepToml:
    """One step: what it is told (`with`), and what must hold (`gates`)."""

    __pydantic_config__ = STRICT
    kind: str
    id: str | None = None
    title: str | None = None
    when: str | None = None
    budget: Duration = None
    stop_on_fail: bool | None = None
    given: Annotated[dict[str, Any] | None, Field(alias="with")] = None
    gates: tuple[GateToml, ...] = ()


@dataclass(frozen=True)
class PlaybookFile:
    """Steps that `evewatch check` runs in their order, with gates on their numbers."""

    __pydantic_config__ = STRICT
    steps: tuple[StepToml, ...] = ()
    title: str | None = None
    about: str = ""
    time_budget: Duration = None
    continue_on_fail: bool = True
    diagnose: bool = True


# --- what it says --------------------------------------------------------------------------


@dataclass(frozen=True)
class PlaybookStep:
    id: str
    kind: str
    title: str
    parameters: Any
    """The model of its type, with defaults."""
    gates: tuple[Gate, ...] = ()
    when: Condition | None = None
    budget_s: float | None = None
    stop_on_fail: bool | None = None
    """None: as the playbook says."""

    @property
    def type(self) -> StepType:
        return STEP_TYPES[self.kind]


@dataclass(frozen=True)
class Playbook:
    name: str
    title: str
    steps: tuple[PlaybookStep, ...]
    about: str = ""
    time_budget_s: float | None = None
    continue_on_fail: bool = True
    diagnose: bool = True
    path: Path | None = None

    @property
    def facts(self) -> set[str]:
        """What its steps are to measure for a diagnosis."""
        return {fact for step in self.steps for fact in step.type.facts}

    @property
    def judged(self) -> set[str]:
        """Metrics that a gate, a condition or the diagnosis looks at."""
        gates = {gate.metric for step in self.steps for gate in step.gates}
        asked = {name for step in self.steps if step.when for _, name in step.when.references}
        return gates | asked - {"verdict"} | (self.facts if self.diagnose else set())


def names() -> list[str]:
    """The playbooks that ship."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


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
    return _playbook(TomlFile(path, "playbook"))


def read(text: str, path: Path) -> Playbook:
    """Raises ConfigError: file, line, what is wrong, what there is."""
    return _playbook(TomlFile(path, "playbook", text))


def _playbook(file: TomlFile) -> Playbook:
    table = file.read(PlaybookFile)
    if not table.steps:
        raise file.wrong((), "a playbook has [[steps]], one at least")
    steps: list[PlaybookStep] = []
    for i, row in enumerate(table.steps):
        steps.append(_step(file, row, ("steps", i), steps))
    return Playbook(
        file.path.stem,
        table.title or file.path.stem,
        tuple(steps),
        table.about.strip(),
        None if table.time_budget is None else seconds(table.time_budget),
        table.continue_on_fail,
        table.diagnose,
        file.path,
    )


def _step(file: TomlFile, row: StepToml, at: Location, before: list[PlaybookStep]) -> PlaybookStep:
    if row.kind not in STEP_TYPES:
        known = ", ".join(STEP_TYPES)
        raise file.wrong((*at, "kind"), f"kind {row.kind!r} is not known; known: {known}")
    name, kind = row.id or row.kind, STEP_TYPES[row.kind]
    if not _ID.fullmatch(name) or name in (step.id for step in before):
        raise file.wrong(
            (*at, "id"), f"id {name!r}: expected small letters, digits and _, each id once"
        )
    return PlaybookStep(
        name,
        row.kind,
        row.title or kind.about,
        file.read(kind.model, (*at, "with")) if row.given else kind.model(),
        tuple(_gate(file, g, kind, (*at, "gates", i)) for i, g in enumerate(row.gates)),
        None if row.when is None else _condition(file, row.when, before, (*at, "when")),
        None if row.budget is None else seconds(row.budget),
        row.stop_on_fail,
    )


def _gate(file: TomlFile, row: GateToml, kind: StepType, at: Location) -> Gate:
    problem = no_metric(row.metric, kind)
    if problem is None and kind.metrics[row.metric].startswith(FACT):
        problem = f"metric {row.metric!r} is no number; the diagnosis reads it"
    if problem is not None:
        raise file.wrong((*at, "metric"), problem)
    return Gate(row.metric, row.op, row.value, row.severity)


def no_metric(name: str, kind: StepType) -> str | None:
    """Why a type of step has no such metric, or None when it has."""
    if name in kind.metrics:
        return None
    if name in RENAMED:
        return f"metric {name!r} is called {RENAMED[name]!r} now"
    return f"metric {name!r} is none of {kind.name}; known: {', '.join(kind.metrics)}"


def _condition(file: TomlFile, text: str, before: list[PlaybookStep], at: Location) -> Condition:
    try:
        condition = parse(text)
    except ConfigError as error:
        raise file.wrong(at, str(error)) from None
    for name, result in condition.references:
        step = next((step for step in before if step.id == name), None)
        if step is None:
            raise file.wrong(at, f"when: {name!r} is no step before this one")
        if result != "verdict" and (problem := no_metric(result, step.type)):
            raise file.wrong(at, f"when: {problem}")
    return condition
