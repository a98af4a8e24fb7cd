"""The one way into the loop's thread: submit, cancel, call. Safe from any thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from engine.request import Request


@dataclass(frozen=True, slots=True)
class Submit:
    request: Request


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class Call:
    """Run `function` on the loop's thread, between two steps; `future` gets what it gives."""

    function: Callable[[], Any]
    future: Future[Any]

    def run(self) -> None:
        """What it raises goes to whoever waits, and ends nothing else."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.function())
        except BaseException as error:
            self.future.set_exception(error)

    def refuse(self, error: Exception) -> None:
        """It will not be run any more."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


Command = Submit | Cancel | Call


class Intake:
    def __init__(self) -> None:
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._wake = threading.Event()
        self.turned_away = 0
        """Requests that were refused before they came here, for want of room; only grows."""

    def __reduce__(self) -> tuple[type[Intake], tuple[()]]:
        """A copy begins empty."""
        return Intake, ()

    def put(self, command: Command) -> None:
        self._commands.put(command)
        self._wake.set()

    def wake(self) -> None:
        """Make a waiting engine look again."""
        self._wake.set()

    def drain(self) -> Iterator[Command]:
        """What has come so far, in order."""
        if not self._wake.is_set():
            return
        self._wake.clear()
        while True:
            try:
                yield self._commands.get_nowait()
            except queue.Empty:
                return

    def wait(self, timeout: float) -> None:
        """Until something comes, or `timeout` seconds."""
        self._wake.wait(timeout)
