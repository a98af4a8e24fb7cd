"""What a step is given beside its parameters, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from playbooks.steps import Progress


@dataclass(frozen=True)
class StepOutcome:
    """What a step leaves."""

    metrics: Mapping[str, Any]
    """By the names of its type; None where it could not be measured."""
    note: str = ""
    report: Mapping[str, Any] | None = None
    interrupted: bool = False
    not_told: frozenset[str] = frozenset()
    """Of the type's metrics, those that a target of this kind cannot tell from outside. What is
    None and not named here should have been measured."""
    doubts: tuple[str, ...] = ()
    """Why the step proves less than it should: one makes it inconclusive at best."""


@dataclass(frozen=True)
class StepClock:
    """A step's time and its progress."""

    left_s: float | None = None
    """None: as long as it takes."""
    show: Progress = lambda done, total: None
    check: Progress = lambda done, total: None
    """Shows it too, and raises when the time is over: for steps that may be cut between parts."""
    log: bool = True
    """Steps that write the optimization log themselves may."""

    def shortened(self, duration_s: float | None) -> float | None:
        """The duration that was asked for, within the step's time."""
        limits = [limit for limit in (duration_s, self.left_s) if limit is not None]
        return min(limits) if limits else None
