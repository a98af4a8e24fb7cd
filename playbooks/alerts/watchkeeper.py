"""The watchkeeper: looks, counts, sends, and writes down what was sent. Needs no screen."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder
from engine.snapshot import Event, Snapshot, SourceState
from playbooks.alerts.burn import comes_with_objectives
from playbooks.alerts.file import AlertsFile
from playbooks.alerts.keeper import FIRING, Keeper, Message
from playbooks.alerts.silences import Silences
from playbooks.alerts.ways import Way, close_all
from playbooks.objectives.book import Book
from playbooks.objectives.budget import Budget
from playbooks.optlog import OptLog, Record

log = logging.getLogger("evewatch.alerts")
INTERVAL_S = 1.0
PATIENCE_S = 15.0
"""At the end, for what is still to be delivered."""
SAVE_EVERY_S = 60.0
TOLD_KEPT = 50
Targets = Callable[[], Mapping[str, Snapshot]]
Services = Callable[[], Mapping[str, Sequence[str]]]


def state_path() -> Path:
    return user_folder() / "alerts.json"


def kept_state() -> Mapping[str, Any]:
    """What the last watchkeeper of this user kept; nothing where there was none."""
    try:
        found = json.loads(state_path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _fired_before(rules: Path) -> list[Mapping[str, Any]]:
    """When a watchkeeper with this file ended: it is not told again, and its end is told."""
    state = kept_state()
    firing = state.get("firing") if state.get("file") == str(rules.resolve()) else None
    return [one for one in firing if _is_firing(one)] if isinstance(firing, list) else []


def _is_firing(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    texts = all(isinstance(one.get(key), str) for key in ("rule", "target"))
    return texts and isinstance(one.get("since"), int | float) and isinstance(one.get("told"), bool)


class Watchkeeper:
    """`targets` gives the newest Snapshot of each engine; `tell` hears of every message.

    Without `alerts` nothing is told, without a `book` no budget is kept. `services` names the
    engines of each service that a budget is of; by default every engine is one.
    """

    def __init__(
        self,
        alerts: AlertsFile | None,
        ways: Sequence[Way],
        targets: Targets,
        tell: Callable[[Message], None] = lambda _: None,
        silences: Silences | None = None,
        book: Book | None = None,
        services: Services | None = None,
    ) -> None:
        self.keeper = None if alerts is None else Keeper(alerts, _fired_before(alerts.path))
        self.ways, self.book, self._services = list(ways), book, services
        self._saved = 0.0
        """When the book was, Unix s."""
        self.told: deque[Event] = deque(maxlen=TOLD_KEPT)
        """The newest messages, for a screen; from any thread."""
        self._file = None if alerts is None else alerts.path
        self._rules = [
            {"name": one.name, "words": one.words, "text": one.text, "severity": one.severity}
            for one in (alerts.rules if alerts is not None else ())
            if not comes_with_objectives(one.name)
        ]
        self.targets, self._tell = targets, tell
        self._silences = silences or Silences()
        self._seen: dict[str, Any] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchkeeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience_s: float = PATIENCE_S) -> list[Message]:
        """What could not be delivered in so long a time; it is named in the log, too."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(INTERVAL_S * 10)
        if self.keeper is not None:
            self._send(self.keeper.close(time.time()))
        self._save()
        if self._seen is not None:
            self._write(self._seen | dict.fromkeys(("time", "ended"), time.time()))
        left = [message for those in close_all(self.ways, patience_s) for message in those]
        for message in left:
            log.warning("not delivered: %s", message.line)
        return left

    def look(self, now: float) -> list[Message]:
        """Once. Never raises: who looks after engines must not end with what it cannot read."""
        targets = self.targets()
        if self.book is not None:
            self.book.look(targets, now, self._services().values() if self._services else ())
            if now - self._saved >= SAVE_EVERY_S:
                self._saved = now
                self._save()
        if self.keeper is None:
            return []
        try:
            self.keeper.silences = self._silences.read()
        except ConfigError as error:
            log.warning("%s", error)
        messages = self.keeper.look(targets, now, self.budgets(targets))
        self._send(messages)
        self._keep_state(self.keeper, targets, now)
        return messages

    def budgets(self, targets: Mapping[str, Snapshot]) -> dict[str, Sequence[Budget]]:
        """Of each service; while none of its engines is live, only of who answers at all."""
        if self.book is None:
            return {}
        live = {n for n, s in targets.items() if s.source.state is SourceState.LIVE}
        several = self._services() if self._services is not None else {n: (n,) for n in targets}
        return {
            name: (self.book.budgets if live.intersection(engines) else self.book.answers)(engines)
            for name, engines in several.items()
        }

    def _save(self) -> None:
        try:
            if self.book is not None:
                self.book.save()
        except OSError as error:
            log.warning("budgets are not kept: %s", error)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            try:
                self.look(time.time())
            except Exception:
                log.exception("a look at the alerts broke off")

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            for way in self.ways:
                way.put(message)
            self.told.append(Event(message.time, f"alert_{message.state}", message.line))
            self._tell(message)
            try:
                OptLog().append(record_of(message))
            except ConfigError as error:
                log.warning("not in the log: %s", error)

    def _keep_state(self, keeper: Keeper, targets: Mapping[str, Snapshot], now: float) -> None:
        """For `alerts show` and a handover: written when it changes."""
        state: dict[str, Any] = {
            "schema": 1,
            "kind": "alerts",
            "file": None if self._file is None else str(self._file.resolve()),
            "targets": {name: one.source.state.value for name, one in sorted(targets.items())},
            "rules": self._rules,
            "firing": keeper.to_plain(),
            "ways": [way.to_dict() for way in self.ways],
        }
        if state == self._seen:
            return
        self._seen = state
        self._write(state | {"time": now, "ended": None})

    def _write(self, state: Mapping[str, Any]) -> None:
        try:
            private_folder(state_path().parent)
            replace_file(state_path(), json.dumps(state, indent=1).encode())
        except OSError as error:
            log.warning("%s: %s", state_path(), error.strerror)


def record_of(message: Message) -> Record:
    problems = tuple(
        f"{one.name}: {one.reason or message.words}"
        + (f", {one.value:g}" if one.value is not None else "")
        for one in message.targets
    )
    return Record(
        title=f"Alert {message.state}: {message.rule}",
        why=message.text or message.words,
        how={
            "alert": message.id,
            "rule": message.rule,
            "state": message.state,
            "severity": message.severity,
            "words": message.words,
            "targets": [asdict(one) for one in message.targets],
        },
        problems=problems if message.state == FIRING else (),
    )
