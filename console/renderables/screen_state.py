"""ScreenState: all that one drawing of the screen depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from console.history import History
from console.renderables.lines import Field
from console.renderables.playback import Playback
from engine.snapshot import Event, Snapshot, SourceState
from playbooks.objectives.budget import Budget


class EnginePhase(StrEnum):
    LOADING = "loading"
    """The engine's start() has not returned."""
    UP = "up"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class ScreenState:
    snapshot: Snapshot = field(default_factory=Snapshot)
    history: History = field(default_factory=History)
    phase: EnginePhase = EnginePhase.UP
    phase_s: float = 0.0
    """Seconds in this phase."""
    loading: str = ""
    """What is being loaded."""
    readonly: bool = False
    paused: bool = False
    """The display stands still; the engine does not."""
    recording: str = ""
    """ "REC 1.2 MiB" while what is seen is recorded."""
    playback: Playback | None = None
    """Where a replay stands; None when this is no replay."""
    running: str = ""
    """The playbook that runs, and how far it is."""
    budgets: tuple[Budget, ...] = ()
    """Of the objectives, for what is shown; empty where none are set."""
    alerts: tuple[Event, ...] = ()
    """What the watchkeeper told, the newest last."""

    @property
    def watched(self) -> bool:
        """From outside: what such an engine does not tell is not drawn. EveWatch elsewhere tells
        all that it tells here."""
        source = self.snapshot.source
        elsewhere = "://" in source.target and source.engine != "evewatch"
        return elsewhere or source.engine == "fleet"

    def told(self, fields: Sequence[Field]) -> list[Field]:
        """Of a watched engine's fields those with a value; of our own all, so that they stand
        still while values come."""
        return [f for f in fields if not self.watched or any(c.isalnum() for c in f.value)]

    @property
    def trusted(self) -> bool:
        """The numbers are of now."""
        return self.snapshot.source.state is SourceState.LIVE

    @property
    def now(self) -> float:
        """The right edge of graphs, Unix seconds."""
        return self.history.newest_time
