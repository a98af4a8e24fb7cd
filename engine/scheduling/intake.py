"""The one way into the engine thread: submit, cancel, reconfigure. Safe from any thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from engine.observing.ledger import Ledger
from engine.request import Request


@dataclass(frozen=True, slots=True)
class Submit:
    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class Reconfigure:
    """Live settings to change: cap, paused, dynamic, max_wait_ms, draining."""

    changes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Inspect:
    """The engine thread puts its ledger into `answer`."""

    answer: Future[Ledger]


@dataclass(frozen=True, slots=True)
class Reset:
    """Forget telemetry and cached pages; `answer` is set when done."""

    answer: Future[None]


Command = Submit | Cancel | Reconfigure | Inspect | Reset


class Intake:
    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._wake = threading.Event()

    def put(self, command: Command) -> None:
        self._commands.put(command)
        self._wake.set()

    def wake(self) -> None:
        """Make a waiting engine look again."""
        self._wake.set()

    def drain(self) -> Iterator[Command]:
        """What has come so far, in order."""
        self._wake.clear()
        while True:
            try:
                yield self._commands.get_nowait()
            except queue.Empty:
                return

    def wait(self, timeout: float) -> None:
        """Until something comes, or `timeout` seconds."""
        self._wake.wait(timeout)
