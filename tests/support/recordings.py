"""Recordings for tests: a scripted engine on a clock that stands still between frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from console.recording.recorder import About, Recorder
from engine.simulated.demo import DemoEngine
from engine.snapshot import Snapshot

START = 1_798_070_400.0
"""2026-12-24 00:00:00 UTC."""


class Clock:
    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def record(
    path: Path,
    seconds: float,
    script: str = "typical",
    hz: float = 4.0,
    between: Callable[[DemoEngine, float], None] = lambda engine, passed: None,
    **options: object,
) -> list[Snapshot]:
    """Record `seconds` of a script; the Snapshots that were handed to the recorder.

    `between` is called before each frame with the engine and the seconds that have passed.
    """
    clock = Clock()
    engine = DemoEngine(script, clock=clock)
    recorder = Recorder(path, About("fake", hz, engine.config), clock, **options)  # type: ignore[arg-type]
    seen = list(_frames(engine, clock, seconds, hz, between, recorder))
    recorder.close()
    return seen


def _frames(
    engine: DemoEngine,
    clock: Clock,
    seconds: float,
    hz: float,
    between: Callable[[DemoEngine, float], None],
    recorder: Recorder,
) -> Iterator[Snapshot]:
    for frame in range(round(seconds * hz)):
        clock.now = START + frame / hz
        between(engine, frame / hz)
        snapshot = engine.snapshot()
        recorder.add(snapshot)
        yield snapshot
