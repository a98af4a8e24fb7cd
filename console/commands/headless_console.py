"""A console without a terminal on an engine that somebody else drives, to measure what it costs.

It has what a real one has: a thread of its own, ticks, and the bytes for a terminal, which are
counted and dropped.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from textual import events
from textual.drivers.headless_driver import HeadlessDriver

from console.app import Console, build_app
from console.renderables.screen_state import EnginePhase
from engine.errors import EngineError

SIZE = (120, 40)
REFRESH_HZ = 2.0
PATIENCE_S = 30.0
LOOK_S = 0.01
BETWEEN_KEYS_S = 0.23
"""No multiple of the refresh, so that keys meet all of it."""
KEYS = ("3", "3", "4", "4", "r", "escape")
"""Each one draws the whole screen anew."""


class NullDriver(HeadlessDriver):
    """Takes the bytes that a terminal would get, and says when what is awaited was in them."""

    written = 0
    awaited: Callable[[], bool] | None = None
    """Whether the console shows what is waited for; asked at each write until it does. Here, in
    its own thread: another one may look too late, and take the next tick for the answer."""
    drawn = 0.0
    """Monotonic seconds: when it did."""

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written += len(data)
        if self.awaited is not None and self.awaited():
            self.drawn, self.awaited = time.monotonic(), None

    def flush(self) -> None:
        pass


class Borrowed:
    """An engine that the console neither starts nor stops."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class HeadlessConsole:
    """A context: on entering, the first screen has been drawn; on leaving, the console is gone."""

    def __init__(self, engine: Any) -> None:
        self._engine = Borrowed(engine)
        self._thread = threading.Thread(target=self._run, name="evewatch-console", daemon=True)
        self._error: Exception | None = None
        self.app: Console | None = None

    def __enter__(self) -> HeadlessConsole:
        self._thread.start()
        self._until(self._is_drawn, "did not come up")
        return self

    def __exit__(self, *_: object) -> None:
        if self.app is not None:
            self.app.call_soon(self.app.exit)
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        try:
            app = build_app(self._engine, readonly=True, refresh_hz=REFRESH_HZ)
            app.driver_class = NullDriver
            self.app = app
            asyncio.run(app.run_async(headless=False, size=SIZE, mouse=False))
        except Exception as error:  # told to who waits for it
            self._error = error

    @property
    def driver(self) -> NullDriver | None:
        driver = None if self.app is None else self.app._driver
        return driver if isinstance(driver, NullDriver) else None

    def cpu_s(self) -> float | None:
        """CPU seconds of its thread so far; None where a thread's cannot be read (macOS)."""
        ident, clock_of = self._thread.ident, getattr(time, "pthread_getcpuclockid", None)
        if ident is None or clock_of is None or not self._thread.is_alive():
            return None
        return time.clock_gettime(clock_of(ident))

    def _is_drawn(self) -> bool:
        up = self.app is not None and self.app.bridge.phase is EnginePhase.UP
        return up and self.driver is not None and self.driver.written > 0

    def press(self, key: str) -> float:
        """Milliseconds from a key to the end of the drawing that it causes."""
        app, driver = self.app, self.driver
        if app is None or driver is None:
            raise EngineError("the console has ended")
        before, start = self._seen(app), time.monotonic()
        driver.awaited = lambda: self._seen(app) != before
        driver.process_message(events.Key(key, None))
        self._until(lambda: driver.awaited is None, f"did not answer the key {key}")
        return (driver.drawn - start) * 1e3

    @staticmethod
    def _seen(app: Console) -> tuple[object, object]:
        return app.top_screen, app.overview.maximised

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if self._error is not None:
                raise EngineError(f"the console failed: {self._error}") from self._error
            if time.monotonic() > end or not self._thread.is_alive():
                raise EngineError(f"the console {what}")
            time.sleep(LOOK_S)


class KeyPresser:
    """Presses keys, one after another, in a console beside an engine that is busy."""

    def __init__(self) -> None:
        self.milliseconds: list[float | None] = []
        self._done = threading.Event()

    @contextmanager
    def beside(self, engine: Any) -> Iterator[HeadlessConsole]:
        """Keys are pressed within it. Raises EngineError when one is not answered."""
        with HeadlessConsole(engine) as console, ThreadPoolExecutor(1) as finger:
            pressing = finger.submit(self._press, console)
            try:
                yield console
            finally:
                self._done.set()
            pressing.result()

    def _press(self, console: HeadlessConsole) -> None:
        for key in cycle(KEYS):
            if self._done.wait(BETWEEN_KEYS_S):
                return
            self.milliseconds.append(console.press(key))
