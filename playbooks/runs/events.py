"""What a running playbook tells whoever watches it: the command line and the screen alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Announced:
    """Before the first request to a target that others use as well."""

    text: str


@dataclass(frozen=True)
class StepStarted:
    id: str
    kind: str
    title: str
    number: int
    total: int


@dataclass(frozen=True)
class StepProgress:
    id: str
    done: int
    total: int
    text: str = ""


@dataclass(frozen=True)
class GateJudged:
    id: str
    metric: str
    verdict: str
    evidence: str


@dataclass(frozen=True)
class StepEnded:
    id: str
    verdict: str
    seconds: float
    note: str
    """One line: what came of it, or why it was not run."""


@dataclass(frozen=True)
class PlaybookEnded:
    report: dict[str, Any]


Event = Announced | StepStarted | StepProgress | GateJudged | StepEnded | PlaybookEnded
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """For a run without a listener."""
