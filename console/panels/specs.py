"""The panels of the overview, in the order of their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from console.renderables import batch, events, kv, latency, machine, queue, stages
from console.renderables.lines import Line
from console.renderables.screen_state import ScreenState
from engine.snapshot import Snapshot

Draw = Callable[[ScreenState, int, int], list[Line]]
"""ScreenState, width, height -> at most `height` lines of at most `width` cells."""


@dataclass(frozen=True)
class PanelSpec:
    id: str
    key: str
    title: str
    draw: Draw
    detail: Draw
    """Drawn instead while the panel is maximised."""
    section: Callable[[Snapshot], Any]
    """The part of a Snapshot it shows: equal to an empty one's, nothing was reported."""

    def reported(self, snapshot: Snapshot) -> bool:
        return bool(self.section(snapshot) != self.section(_EMPTY))


_EMPTY = Snapshot()

LAYOUT = ("queue", "batch", "machine", "kv", "latency", "stages", "events")
"""Ids in the order in which they fill the screen; keys go by PANELS."""

PANELS = (
    PanelSpec("queue", "1", "Queue", queue.overview, queue.detail, lambda s: s.queue),
    PanelSpec("batch", "2", "Batch", batch.overview, batch.detail, lambda s: s.batch),
    PanelSpec("kv", "3", "KV pages and memory", kv.overview, kv.detail, lambda s: s.kv),
    PanelSpec("latency", "4", "Latency", latency.overview, latency.detail, lambda s: s.latency),
    PanelSpec(
        "stages",
        "5",
        "Where the time goes",
        stages.overview,
        stages.detail,
        lambda s: (s.stages, s.steps),
    ),
    PanelSpec("events", "6", "Events", events.overview, events.detail, lambda s: s.time),
    PanelSpec(
        "machine",
        "7",
        "Machine",
        machine.overview,
        machine.detail,
        lambda s: (s.memory, s.gpus),
    ),
)
