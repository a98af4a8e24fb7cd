"""The table [objectives] of a file of settings or a fleet file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, Lt

from checklists.tomlfile import STRICT, TomlFile
from engine.errors import ConfigError
from engine.observing.objectives import AVAILABILITY, REACHABLE, TIMED, Objective
from playbooks.steps.durations import seconds
from playbooks.steps.fields import Reads

TABLE = "objectives"
NAMES = (*TIMED, AVAILABILITY, REACHABLE)
Duration = Annotated[Any, Reads("playbooks.steps.durations:seconds")]
Share = Annotated[float, Gt(0), Lt(1)]


@dataclass(frozen=True)
class TimedToml:
    """So large a share of the requests within so long."""

    __pydantic_config__ = STRICT
    within: Duration
    share: Share


@dataclass(frozen=True)
class ShareToml:
    """So large a share of the requests is served at all, of the time somebody answers."""

    __pydantic_config__ = STRICT
    share: Share


@dataclass(frozen=True)
class ObjectivesToml:
    """What is promised over a window, the holiday say."""

    __pydantic_config__ = STRICT
    window: Duration
    begins: Annotated[Any, Reads("playbooks.objectives.file:moment")] = None
    """A date or a time; without it the window is the time up to now."""
    ttft: TimedToml | None = None
    tpot: TimedToml | None = None
    e2e: TimedToml | None = None
    availability: ShareToml | None = None
    reachable: ShareToml | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in NAMES):
            names = ", ".join(NAMES)
            raise ConfigError(f"window: there is no objective beside it; known: {names}")


@dataclass(frozen=True)
class Objectives:
    each: tuple[Objective, ...]
    window_s: float
    begins: float | None = None
    """Unix seconds; None: the window is the last `window_s` seconds, whenever it is."""


def load(path: Path) -> Objectives | None:
    """None where the file has no such table. Raises ConfigError: file, line, what is wrong."""
    file = TomlFile(path, "settings")
    if TABLE not in file.data:
        return None
    table = file.read(ObjectivesToml, (TABLE,))
    each = [_objective(f.name, getattr(table, f.name)) for f in fields(table)[2:]]
    return Objectives(
        tuple(one for one in each if one is not None),
        seconds(table.window),
        None if table.begins is None else moment(table.begins),
    )


def _objective(name: str, row: TimedToml | ShareToml | None) -> Objective | None:
    if row is None:
        return None
    within = seconds(row.within) if isinstance(row, TimedToml) else None
    return Objective(name, row.share, within)


def moment(text: Any) -> float:
    """Unix seconds of 2026-12-24 or 2026-12-24T18:00; what has no zone is local time."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{text!r} is no time; write it like 2026-12-24 or 2026-12-24T18:00"
        ) from None
