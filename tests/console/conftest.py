"""Frames of every state for display tests, made from DemoEngine on a clock that stands still."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from console.history import History
from console.renderables.screen_state import ScreenState
from engine.observing.watchable import aged
from engine.simulated.demo import DemoEngine
from engine.snapshot import EngineInfo, Percentiles, Snapshot, Source, SourceState

_rules: dict[tuple[object, ...], list[RuleSet]] = {}
_parse_rules = Stylesheet._parse_rules


def _parsed_once(sheet: Stylesheet, css: str, **where: Any) -> list[RuleSet]:
    """Rules do not change once they are read: a stylesheet keeps them, here every app's does."""
    key = (css, *where.values(), *sheet._variables.items())
    if key not in _rules:
        _rules[key] = _parse_rules(sheet, css, **where)
    return _rules[key]


Stylesheet._parse_rules = _parsed_once  # type: ignore[method-assign]

START = 1_798_070_400.0
"""2026-12-24 00:00:00 UTC."""


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clock times on the screen must not depend on where the tests run."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shown_of() -> Callable[[str], ScreenState]:
    return _state


@lru_cache
def _state(state: str) -> ScreenState:
    if state == "empty":
        return ScreenState(Snapshot())
    script = "typical" if state == "broken" else state
    clock, history = Clock(), History()
    engine = DemoEngine(script, clock=clock)
    for _ in range(60):
        clock.now += 0.5
        history.push(aged(engine.snapshot(), clock.now))
    snapshot = aged(engine.snapshot(), clock.now)
    return ScreenState(broken(snapshot) if state == "broken" else snapshot, history)


def broken(snapshot: Snapshot) -> Snapshot:
    """Some gauges NaN, some missing, names that try to steer the terminal."""
    nan = math.nan
    return replace(
        snapshot,
        source=Source(SourceState.LIVE),
        engine=EngineInfo(model="evil\x1b[2J\r\nmodel", note="tab\there"),
        queue=replace(snapshot.queue, waiting=None, arrivals_per_s=nan, oldest_wait_s=nan),
        batch=replace(snapshot.batch, step_ms=math.inf, cap=None, prefill_tokens=nan),
        kv=replace(snapshot.kv, usage=nan, page_map=None, bytes_per_token=-math.inf),
        latency=replace(snapshot.latency, ttft_ms=Percentiles(nan, None, math.inf, nan, 3)),
        stages=replace(snapshot.stages, queue=nan, decode=None),
    )
