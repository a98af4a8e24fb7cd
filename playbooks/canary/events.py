"""What a canary tells whoever watches it while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Phase:
    """Something other than a stage begins: loading, quality, reference, roll-back."""

    name: str
    text: str


@dataclass(frozen=True)
class StageBegan:
    number: int
    """1 is the first."""
    share: float
    stages: int


@dataclass(frozen=True)
class Beat:
    """Twice a look at least: how far the stage is."""

    share: float
    elapsed_s: float
    least_s: float
    candidate: int
    baseline: int
    """Requests of the stage that have ended."""
    wanted: int
    """Least of the candidate's."""
    failed: int
    """Of the candidate's."""
    open: int
    """Of both."""


@dataclass(frozen=True)
class Decided:
    """The traffic moves, or the canary ends."""

    decision: dict[str, Any]
    """As in the report's `decisions`."""


Event = Phase | StageBegan | Beat | Decided
Listener = Callable[[Event], None]
