"""Why a scrape gave no numbers. Each ends as a source state with its reason, none as a crash.

Trouble
├── Unreachable    nobody answers, or answers with an error
├── Unparsable     what came back is no metrics page, or only a part of one
└── WrongEngine    a sound page, but of no engine that we know or not of the one expected
"""

from __future__ import annotations

from typing import ClassVar

from engine.errors import EngineError
from engine.snapshot import SourceState


class Trouble(Exception):
    """Its text is one line for the operator."""

    state: ClassVar[SourceState]


class Unreachable(Trouble):
    state = SourceState.UNREACHABLE

    def __init__(self, reason: str, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain
        """False for what may be a hiccup (a time limit): the first one makes numbers stale."""


class Unparsable(Trouble):
    state = SourceState.UNPARSABLE


class WrongEngine(Trouble):
    state = SourceState.WRONG_ENGINE


class NotAvailable(EngineError):
    """Asked of an external engine: something that only the inside of an engine can do."""
