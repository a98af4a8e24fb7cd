"""The watchkeeper: looks, sends, and writes down what was sent. Needs no screen."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import private_folder, replace_file, user_folder
from engine.snapshot import Snapshot
from playbooks.alerts.file import AlertsFile
from playbooks.alerts.keeper import FIRING, Keeper, Message
from playbooks.alerts.silences import Silences
from playbooks.alerts.ways import Way
from playbooks.optlog import OptLog, Record

log = logging.getLogger("evewatch.alerts")
INTERVAL_S = 1.0
PATIENCE_S = 15.0
"""At the end, for what is still to be delivered."""
Targets = Callable[[], Mapping[str, Snapshot]]


def state_path() -> Path:
    return user_folder() / "alerts.json"


class Watchkeeper:
    """`targets` gives the newest Snapshot of each engine; `tell` hears of every message."""

    def __init__(
        self,
        alerts: AlertsFile,
        ways: Sequence[Way],
        targets: Targets,
        tell: Callable[[Message], None] = lambda _: None,
        silences: Silences | None = None,
    ) -> None:
        self.keeper, self.ways = Keeper(alerts), list(ways)
        self._alerts, self._targets, self._tell = alerts, targets, tell
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
        self._send(self.keeper.close(time.time()))
        left = [message for way in self.ways for message in way.close(patience_s)]
        for message in left:
            log.warning("not delivered: %s", message.line)
        return left

    def look(self, now: float) -> list[Message]:
        """Once. Never raises: who looks after engines must not end with what it cannot read."""
        try:
            self.keeper.silences = self._silences.read()
        except ConfigError as error:
            log.warning("%s", error)
        messages = self.keeper.look(self._targets(), now)
        self._send(messages)
        self._keep_state(now)
        return messages

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
            self._tell(message)
            try:
                OptLog().append(record_of(message))
            except ConfigError as error:
                log.warning("not in the log: %s", error)

    def _keep_state(self, now: float) -> None:
        """For `alerts show`: written when it changes."""
        state: dict[str, Any] = {
            "schema": 1,
            "kind": "alerts",
            "file": str(self._alerts.path),
            "targets": sorted(self._targets()),
            "firing": [
                {"rule": rule, "target": target, "since": since}
                for rule, target, since in self.keeper.firing()
            ],
            "ways": [way.to_dict() for way in self.ways],
        }
        if state == self._seen:
            return
        self._seen = state
        try:
            private_folder(state_path().parent)
            replace_file(state_path(), json.dumps(state | {"time": now}, indent=1).encode())
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
        how={"alert": message.id, "severity": message.severity},
        problems=problems if message.state == FIRING else (),
    )
