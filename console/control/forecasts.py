"""The forecast that the console shows: the newest that was kept, or a file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from console.bridge import Bridge
from console.control.forecast_view import ForecastView, HourView, newest_view, read_view
from engine.errors import ConfigError, EngineError
from engine.snapshot import Snapshot

if TYPE_CHECKING:
    from console.recording.replay import Replay


class Host(Protocol):
    """What it needs of the app."""

    bridge: Bridge

    def call_soon(self, do: Callable[[], object]) -> None: ...

    def draw(self, snapshot: Snapshot) -> None: ...

    def visit(self, player: Replay) -> None: ...

    def notify(self, message: str, **options: Any) -> None: ...


class Forecasts:
    """Methods are called from the UI's thread; files are read on others."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self.view: ForecastView | None = None
        self.error = ""
        """Why there is no view, or no newer one."""
        self.is_reading = False
        self.simulating = ""
        """The hour that is being simulated, and the share of it that is."""
        self.share = 0.0
        self._stop = Event()

    def read(self) -> None:
        """The newest kept one, unless there is a forecast already."""
        if self.view is None:
            self._read(newest_view)

    def open(self, path: Path) -> None:
        self._read(lambda: read_view(path))

    def replay(self, place: int, hour: HourView) -> None:
        """Simulate that hour of a scenario on a thread, then show it through the panels."""
        assert self.view is not None, "an hour is of a forecast"
        self.stop_replay()
        self._stop, self.simulating = Event(), hour.label
        report, stop = self.view.report, self._stop

        def work() -> None:
            from console.recording.simulated import Ended, replay_of

            try:
                player = replay_of(report, place, hour.at, stop, self._told)
            except Ended:
                return
            except EngineError as wrong:
                why = str(wrong)
                self._app.call_soon(lambda: self._failed(why, stop))
            else:
                self._app.call_soon(lambda: self._simulated(player, stop))

        threading.Thread(target=work, name="evewatch-hour", daemon=True).start()

    def stop_replay(self) -> None:
        """Nobody waits for the hour that is being simulated."""
        self._stop.set()
        self.simulating, self.share = "", 0.0

    def _told(self, share: float) -> None:
        self.share = share

    def _failed(self, why: str, stop: Event) -> None:
        if not stop.is_set():
            self.stop_replay()
            self._app.notify(why, severity="error")

    def _simulated(self, player: Replay, stop: Event) -> None:
        if not stop.is_set():
            self.stop_replay()
            self._app.visit(player)
            self._app.notify("an hour that has not come yet; F goes back", timeout=8)

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
