"""The checklist step: what a target shows, and a checklist's items answered from it.

The embedded engine serves light traffic for a few seconds; an engine at a URL is only looked
at. Light traffic shows what is broken, not what breaks at the peak.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checklists import checks
from checklists.book import Answer, Checklist, ChecklistResult, merge
from checklists.checks import Settings
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.models import LoadedModel
from engine.snapshot import Snapshot, SourceState
from playbooks.load.arrivals import Closed
from playbooks.load.client import LoadProgress
from playbooks.load.mix import parse_mix
from playbooks.measure.trial import run_trial, warm_up
from playbooks.steps import Progress

SCHEMA = 1
REQUESTS = 100
"""Light traffic; so many have a P99."""
USERS = 8
LENGTHS = "lognormal:24,8"
LOOK_EVERY_S = 0.1
POLL_EVERY_S = 1.0
SETTLE_S = 5.0
"""For the engine to come to rest after the traffic."""


@dataclass(frozen=True)
class TargetView:
    """What a target showed: under load, and at idle after it."""

    load: Snapshot | None
    idle: Snapshot | None
    seconds: float = 0.0

    def at(self, when: str) -> Snapshot | None:
        return self.idle if when == "idle" else self.load


def observe_embedded(
    config: EngineConfig,
    requests: int = REQUESTS,
    seed: int = 0,
    progress: Progress = lambda *_: None,
    loaded: LoadedModel | None = None,
) -> TargetView:
    """Light traffic on an engine of its own. Raises what starting it raises, and EngineError."""
    start = time.monotonic()

    def show(done: LoadProgress) -> None:
        progress(done.done, requests)

    with Engine(config, loaded) as engine:
        warm_up(engine)
        with _Watching(engine) as watching:
            run_trial(engine, Closed(USERS), parse_mix(LENGTHS), requests, seed, on_progress=show)
        idle = _at_rest(engine)
    return TargetView(_under_load(idle, watching.fullest), idle, time.monotonic() - start)


class _Watching:
    """Keeps the Snapshot of the fullest moment, on a thread of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._ended = engine, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="evewatch-look", daemon=True)
        self.fullest: Snapshot | None = None

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self.fullest = fuller(self.fullest, self._engine.snapshot())

    def __enter__(self) -> _Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def fuller(a: Snapshot | None, b: Snapshot) -> Snapshot:
    """The one with more of the KV pool, or more rows, in use."""

    def fullness(s: Snapshot) -> tuple[float, int]:
        return s.kv.usage or 0.0, s.batch.running or 0

    return b if a is None or fullness(b) >= fullness(a) else a


def _under_load(last: Snapshot, fullest: Snapshot | None) -> Snapshot:
    """Pool and batch of the fullest moment; latencies and counts of the whole time."""
    if fullest is None:
        return last
    batch = replace(fullest.batch, preemption_tax=last.batch.preemption_tax)
    return replace(last, kv=fullest.kv, batch=batch)


def _at_rest(engine: Engine) -> Snapshot:
    """The first Snapshot in which nobody runs or waits, or the last when it takes too long."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        engine.snapshot()
        time.sleep(LOOK_EVERY_S)
        found = engine.snapshot()
        is_idle = found.batch.running == 0 and found.queue.waiting == 0
        if is_idle or time.monotonic() > deadline:
            return found


def observe_url(url: str, seconds: float, token: str | None = None) -> TargetView:
    """Look at an engine that is in use: the fullest moment of `seconds`, and the last one."""
    from engine.remote import attach

    start, fullest = time.monotonic(), None
    engine = attach(url, token)
    try:
        while True:
            last = engine.poll()
            is_live = last.source.state is SourceState.LIVE
            fullest = fuller(fullest, last) if is_live else fullest
            left = start + seconds - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(POLL_EVERY_S, left))
    finally:
        engine.stop()
    load = _under_load(last, fullest) if last.source.state is SourceState.LIVE else last
    return TargetView(load, last, time.monotonic() - start)


def observe_file(path: Path) -> TargetView:
    """A Snapshot in a file: as an engine writes it, or as `watch --once --json` reports it."""
    try:
        data = json.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--snapshot {path}: cannot be read ({error})") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"--snapshot {path}: not valid JSON: {error}") from error
    targets = data.get("targets") if isinstance(data, dict) else None
    if isinstance(targets, list):
        found = [t["snapshot"] for t in targets if isinstance(t, dict) and t.get("snapshot")]
        if len(found) != 1:
            raise ConfigError(f"--snapshot {path}: expected one target in it, got {len(found)}")
        data = found[0]
    try:
        snapshot = Snapshot.from_json(json.dumps(data))
    except ValueError as error:
        raise ConfigError(f"--snapshot {path}: no snapshot: {error}") from error
    return TargetView(snapshot, snapshot)


def answer_all(
    checklist: Checklist,
    observed: TargetView,
    config: Settings,
    environment: Mapping[str, Any] | None,
) -> dict[str, checks.ItemResult]:
    """The automatic items, by id."""
    return {
        item.id: checks.answer(item, observed.at(item.when), config, environment)
        for item in checklist.of_kind("auto")
    }


def conclude(
    checklist: Checklist,
    automatic: Mapping[str, checks.ItemResult],
    answers: Mapping[str, Answer],
    target: str,
    seconds: float = 0.0,
    signed_off_by: str | None = None,
) -> dict[str, Any]:
    """The report. Raises ConfigError for answers that do not belong."""
    outcome = merge(checklist, automatic, answers)
    return {
        "schema": SCHEMA,
        "kind": "checklist",
        "name": checklist.name,
        "title": checklist.title,
        "about": checklist.about,
        "target": target,
        "verdict": outcome.verdict,
        "counts": outcome.counts(),
        "items": _rows(outcome),
        "signed_off_by": signed_off_by,
        "seconds": round(seconds, 1),
    }


def _rows(outcome: ChecklistResult) -> list[dict[str, Any]]:
    return [
        {
            "id": line.item.id,
            "kind": line.item.kind,
            "severity": line.item.severity,
            "text": line.item.text,
            "owner": line.item.owner,
            "verdict": line.result.verdict,
            "evidence": line.result.evidence,
            "by": line.by,
            "why": line.item.why,
            "undo": line.item.undo,
            "remedy": line.item.remedy,
            "command": line.item.command,
        }
        for line in outcome.lines
    ]
