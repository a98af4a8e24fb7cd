"""The forecast that the console shows: the newest that was kept, or a file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from console.bridge import Bridge
from console.control.forecast_view import ForecastView, newest_view, read_view
from engine.errors import ConfigError
from engine.snapshot import Snapshot


class Host(Protocol):
    """What it needs of the app."""

    bridge: Bridge

    def call_soon(self, do: Callable[[], object]) -> None: ...

    def draw(self, snapshot: Snapshot) -> None: ...

    def notify(self, message: str, **options: Any) -> None: ...


class Forecasts:
    """Methods are called from the UI's thread; files are read on others."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self.view: ForecastView | None = None
        self.error = ""
        """Why there is no view, or no newer one."""
        self.is_reading = False

    def read(self) -> None:
        """The newest kept one, unless there is a forecast already."""
        if self.view is None:
            self._read(newest_view)

    def open(self, path: Path) -> None:
        self._read(lambda: read_view(path))

    def _read(self, get: Callable[[], ForecastView | None]) -> None:
        def work() -> None:
            view, error = None, ""
            try:
                view = get()
            except ConfigError as wrong:
                error = str(wrong)
            self._app.call_soon(lambda: self._took(view, error))

        self.is_reading = True
        threading.Thread(target=work, name="evewatch-forecast", daemon=True).start()

    def _took(self, view: ForecastView | None, error: str) -> None:
        self.view, self.error, self.is_reading = view or self.view, error, False
        if error and self.view is not None:
            self._app.notify(error, severity="error")
        self._app.draw(self._app.bridge.poll())
