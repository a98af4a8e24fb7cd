"""The panels of the overview, in the order of their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from console.renderables import batch, budget, events, kv, latency, machine, queue, stages
from console.renderables.lines import Line
from console.renderables.screen_state import ScreenState
from engine.snapshot import Snapshot


class View(Protocol):
    """A renderable of a panel: at most `height` lines of at most `width` cells."""

    def overview(self, state: ScreenState, width: int, height: int) -> list[Line]: ...

    def detail(self, state: ScreenState, width: int, height: int) -> list[Line]:
        """Drawn instead while the panel is maximised."""


@dataclass(frozen=True)
class PanelSpec:
    id: str
    key: str
    title: str
    view: View
    section: Callable[[Snapshot], Any]
    """The part of a Snapshot it shows: equal to an empty one's, nothing was reported."""

    def reported(self, snapshot: Snapshot) -> bool:
        return bool(self.section(snapshot) != self.section(_EMPTY))


_EMPTY = Snapshot()

LAYOUT = ("queue", "batch", "machine", "kv", "latency", "stages", "budget", "events")
"""Ids in the order in which they fill the screen; keys go by PANELS."""

PANELS = (
    PanelSpec("queue", "1", "Queue", queue, lambda s: s.queue),
    PanelSpec("batch", "2", "Batch", batch, lambda s: s.batch),
    PanelSpec("kv", "3", "KV pages and memory", kv, lambda s: s.kv),
    PanelSpec("latency", "4", "Latency", latency, lambda s: s.latency),
    PanelSpec("stages", "5", "Where the time goes", stages, lambda s: (s.stages, s.steps)),
    PanelSpec("events", "6", "Events", events, lambda s: s.time),
    PanelSpec("machine", "7", "Machine", machine, lambda s: (s.memory, s.gpus)),
    PanelSpec("budget", "8", "Budget", budget, lambda s: s.objectives),
)
