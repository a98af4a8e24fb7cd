"""What a rule looks at: a field of a Snapshot by its dotted name, as a number."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from checklists.checks import walk
from checklists.tomlfile import unknown
from engine.errors import ConfigError
from engine.snapshot import Snapshot, SourceState
from playbooks.objectives.budget import Budget
from playbooks.objectives.file import NAMES

Reading = Callable[[Snapshot], float | None]
BudgetsReading = Callable[[Sequence[Budget]], float | None]
OBJECTIVES = "objectives"
"""`objectives.NAME.WHAT` is of the budgets of a service, and not of a Snapshot."""
STATES = frozenset(f"source.{state.value}" for state in SourceState)
"""1 while a target is in that state; read in every state, as nothing else is."""
SUMS = ("finished", "ledger")
"""Tables of counts: a rule names an entry, `finished.error`, or all together, `finished`."""


def reading(name: str) -> Reading:
    """How to read `name`. A switch is 0 or 1, a text 1 where there is one. Raises ConfigError."""
    table, _, entry = name.partition(".")
    if name in STATES:
        return lambda snapshot: float(snapshot.source.state.value == entry)
    if table in SUMS:
        return lambda snapshot: _count(getattr(snapshot, table), entry)
    known = _names()
    if name not in known:
        raise ConfigError(f"field: {unknown('field', name, known)}")
    is_text = known[name]

    def read(snapshot: Snapshot) -> float | None:
        value = walk(snapshot, name)
        if is_text:
            return float(bool(value))
        return None if value is None else float(value)

    return read


OF_BUDGETS: dict[str, Callable[[Budget], float | None]] = {
    "spent": lambda budget: budget.spent,
    "pace": lambda budget: budget.pace,
    "fast": lambda budget: budget.fast.rate,
    "slow": lambda budget: budget.slow.rate,
    "missing": lambda budget: budget.missing,
}
"""The share that is spent, in times of what would last the window how fast it goes, the same as the
two burn alerts have it, and the share of the newest requests that missed it."""


def budgets_reading(name: str) -> BudgetsReading:
    """How to read `objectives.NAME.WHAT`, None without such an objective. Raises ConfigError."""
    _, objective, what, *_ = *name.split("."), "", ""
    for given, known in ((objective, NAMES), (what, tuple(OF_BUDGETS))):
        if given not in known:
            raise ConfigError(f"field: {OBJECTIVES}.NAME.WHAT: {unknown('name', given, known)}")

    def read(budgets: Sequence[Budget]) -> float | None:
        found = next((one for one in budgets if one.objective.name == objective), None)
        return None if found is None else OF_BUDGETS[what](found)

    return read


def _count(table: dict[str, int], entry: str) -> float | None:
    if not entry:
        return float(sum(table.values())) if table else None
    return float(table[entry]) if entry in table else (0.0 if table else None)


@cache
def _names() -> dict[str, bool]:
    """Every field that is a number, a switch or a text; True: a text."""
    return dict(_below(Snapshot, ""))


def _below(model: type[Any], before: str) -> typing.Iterator[tuple[str, bool]]:
    hints = typing.get_type_hints(model)
    for field in fields(model):
        for kind in _kinds(hints[field.name]):
            if is_dataclass(kind):
                yield from _below(typing.cast("type[Any]", kind), f"{before}{field.name}.")
            elif kind in (int, float, bool, str):
                yield f"{before}{field.name}", kind is str


def _kinds(hint: Any) -> tuple[Any, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    return (hint,)
