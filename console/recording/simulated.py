"""An hour that has not come yet, as a recording: played like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from console.recording.file import Recording
from console.recording.past import read_past
from console.recording.recorder import About, Recorder
from console.recording.replay import SPEEDS, Replay
from engine.errors import EngineError
from playbooks.forecast.hour import FRAME_S, HOUR_S, frames, scenario_and_world

SPEED = 60.0
"""An hour in a minute, to begin with."""


class SimulatedHour(Replay):
    """Its file goes with it."""

    note = "a forecast; F goes back"

    def __init__(self, path: Path, folder: tempfile.TemporaryDirectory[str]) -> None:
        super().__init__(Recording(path))
        self._folder = folder


def replay_of(
    report: dict[str, Any], place: int, at: datetime, tell: Callable[[float, float], object]
) -> Replay:
    """Simulates the hour of a forecast that begins `at`, and tells how far it is: seconds of
    how many. Raises EngineError, and what `tell` raises."""
    scenario, world = scenario_and_world(report, place, read_past)
    begin = at.timestamp() - datetime.fromisoformat(report["start"]).timestamp()
    folder = tempfile.TemporaryDirectory(prefix="evewatch-")
    path, clock = Path(folder.name) / "hour.everec", at.timestamp()
    recorder = Recorder(path, About("forecast", 1 / FRAME_S, scenario.config), lambda: clock)
    try:
        seen = frames(scenario, world, begin, since(report, place, begin), tell)
        for moment, snapshot in seen:
            clock = at.timestamp() + moment - begin
            recorder.add(snapshot)
    finally:
        recorder.close()
    if not recorder.frames:
        raise EngineError("the forecast's period has nothing of that hour")
    player = SimulatedHour(path, folder)
    player.faster(SPEEDS.index(SPEED) - SPEEDS.index(1.0))
    return player


def since(report: dict[str, Any], place: int, begin_s: float) -> float:
    """Where the saturation began that the hour lies in, else its own begin; seconds."""
    start = datetime.fromisoformat(report["start"]).timestamp()
    for span in report["scenarios"][place]["saturations"]:
        first = datetime.fromisoformat(span["from"]).timestamp() - start
        until = span["until"]
        last = None if until is None else datetime.fromisoformat(until).timestamp() - start
        if first < begin_s + HOUR_S and (last is None or begin_s < last):
            return min(first, begin_s)
    return begin_s
