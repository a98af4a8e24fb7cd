"""What screens, dialogs and controls may ask of the app; console/app.py is what answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.app import App

from console.actions import Scope
from console.bridge import Bridge
from console.control.conversation import Conversation
from console.control.pending_changes import PendingChanges
from console.history import History
from console.renderables.screen_state import ScreenState
from engine.snapshot import Snapshot
from playbooks.alerts.watchkeeper import Watchkeeper
from playbooks.objectives.budget import Budget
from playbooks.optlog import OptLog

if TYPE_CHECKING:  # they load what only an open screen needs
    from console.control.filled_checklist import FilledChecklist
    from console.control.forecasts import Forecasts
    from console.control.run_manager import RunManager
    from console.recording.replay import Replay


Watched = tuple[Mapping[str, Sequence[Budget]], Mapping[str, Snapshot]]
"""Budgets by service, and engines as they are seen."""


class ConsoleSurface(App[None]):
    """The parts of the console that others work with. All of it belongs to the UI's thread, but
    for `say` and `call_soon`."""

    bridge: Bridge
    history: History
    changes: PendingChanges
    talk: Conversation
    log_book: OptLog
    clock: Callable[[], float]
    """Unix seconds; of a recording, its own."""
    shown: ScreenState
    """What the display stands at: the latest, or that of when it was paused."""
    keeper: Watchkeeper | None
    """Who keeps budgets and alerts, if somebody does."""

    @property
    def runs(self) -> RunManager:
        """Playbooks that run and have run."""
        raise NotImplementedError

    @property
    def checklists(self) -> list[FilledChecklist]:
        """With what was answered since the console was started."""
        raise NotImplementedError

    @property
    def forecasts(self) -> Forecasts:
        """The forecast that is shown."""
        raise NotImplementedError

    @property
    def player(self) -> Replay | None:
        """The engine, where it is a recording."""
        raise NotImplementedError

    @property
    def here(self) -> Scope:
        """What may be done on the topmost screen that is no dialog."""
        raise NotImplementedError

    def scope(self, where: str) -> Scope:
        raise NotImplementedError

    def visit(self, player: Replay) -> None:
        """Show a recording in our own engine's place."""
        raise NotImplementedError

    def tick(self) -> None:
        """Read the latest Snapshot and draw it."""
        raise NotImplementedError

    def watched(self) -> Watched:
        raise NotImplementedError

    def draw(self, snapshot: Snapshot) -> None:
        """On the screen that is seen."""
        raise NotImplementedError

    def ask(self, text: str) -> None:
        """Send the operator's line to the model."""
        raise NotImplementedError

    def cancel_request(self, request_id: str) -> None:
        raise NotImplementedError

    def say(self, text: str, severity: str = "information") -> None:
        """A notice, from any thread."""
        self.call_soon(lambda: self.notify(text, severity=cast(Any, severity)))

    def call_soon(self, do: Callable[[], object]) -> None:
        """Call in the UI's thread, from any thread; nothing happens when the console has ended."""
        raise NotImplementedError
