"""The forecast that the console shows: the newest that was kept, a file, or one made here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from console.bridge import Bridge
from console.control.forecast_view import (
    ForecastView,
    HourView,
    newest_view,
    read_view,
    view_of,
)
from engine.errors import ConfigError, EngineError
from engine.snapshot import Snapshot
from playbooks.optlog import OptLog
from playbooks.reports import results

if TYPE_CHECKING:
    from console.recording.replay import Replay
    from playbooks.steps.forecast import ForecastStep

FORECAST, HOUR = "forecast", "hour"
"""What can be being made."""
Then = Callable[[], object]
"""What is left to do in the UI's thread."""


class Host(Protocol):
    """What it needs of the app."""

    bridge: Bridge
    log_book: OptLog

    def call_soon(self, do: Callable[[], object]) -> None: ...

    def draw(self, snapshot: Snapshot) -> None: ...

    def visit(self, player: Replay) -> None: ...

    def say(self, text: str, severity: str = "information") -> None: ...

    def notify(self, message: str, **options: Any) -> None: ...


class Ended(Exception):
    """Nobody waits for it any more."""


class Work:
    """Something on a thread of its own, until it is stopped."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.share = 0.0
        """Of it that is done."""
        self.stopped = False

    def tell(self, done: float, total: float) -> None:
        """Called by the thread. Raises Ended."""
        if self.stopped:
            raise Ended
        self.share = done / total if total else 0.0

    @property
    def words(self) -> str:
        return f"{self.what} … {self.share:.0%}"


class Forecasts:
    """Methods are called from the UI's thread; files are read, and days simulated, on others."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self.view: ForecastView | None = None
        self.error = ""
        """Why there is no view, or no newer one."""
        self.is_reading = False
        self._newest: Path | None = None
        """Of those that are kept, when it was last looked."""
        self.asked: dict[str, str] = {}
        """The texts of the last question, until the console is closed."""
        self._works: dict[str, Work] = {}
        """What is being made: a FORECAST, an HOUR of one."""

    # reading

    def read(self) -> None:
        """The newest kept one, unless none was kept since it was last looked."""

        def newer() -> ForecastView | None:
            before, self._newest = self._newest, next(iter(results.files("forecast")), None)
            return newest_view() if self._newest != before else None

        self._read(newer)

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

    # making

    def make(self, step: ForecastStep, failed: Callable[[EngineError], object]) -> None:
        """Simulate what `step` asks of the watched engine, keep it, write it into the log, show it.
        `failed`: told why there is none."""
        engine = self._app.bridge.engine
        config, reach = engine.config, engine.reach

        def do(work: Work) -> Then:
            from console.control.forecast_maker import forecast_of, keep

            report = forecast_of(step, config, reach).report(work.tell, beside=True)
            keep(report, self._app.log_book, self._app.say)
            view = view_of(report, "made here")
            return lambda: self._made(view)

        self._begin(FORECAST, "forecasting", do, failed)

    def _made(self, view: ForecastView) -> None:
        self.view, self.error = view, ""
        verdict = view.scenarios[0].verdict
        self._app.notify(f"forecast: {verdict}; F shows it, the log has an entry", timeout=10)

    def replay(self, place: int, hour: HourView) -> None:
        """Simulate that hour of a scenario, then show it through the panels."""
        assert self.view is not None, "an hour is of a forecast"
        report = self.view.report

        def do(work: Work) -> Then:
            from console.recording.simulated import replay_of

            player = replay_of(report, place, hour.at, work.tell)
            return lambda: self._simulated(player)

        def failed(why: EngineError) -> None:
            self._app.notify(str(why), severity="error")

        self._begin(HOUR, f"simulating {hour.label}", do, failed)

    def _simulated(self, player: Replay) -> None:
        self._app.visit(player)

    @property
    def at_work(self) -> str:
        """In words, "" while nothing is made."""
        return "  ".join(work.words for work in self._works.values())

    def makes(self, kind: str) -> bool:
        return kind in self._works

    def stop(self, kind: str) -> None:
        """Nobody waits for it any more."""
        if kind in self._works:
            self._works.pop(kind).stopped = True

    def _begin(
        self,
        kind: str,
        what: str,
        do: Callable[[Work], Then],
        failed: Callable[[EngineError], object],
    ) -> None:
        """On a thread; what `do` returns, or why it failed, is for the UI's."""
        self.stop(kind)
        work = self._works[kind] = Work(what)

        def on_thread() -> None:
            try:
                then = do(work)
            except Ended:
                return
            except EngineError as wrong:
                then = partial(failed, wrong)
            except Exception as bug:  # it must not say "forecasting" for ever
                then = partial(failed, EngineError(f"{type(bug).__name__}: {bug}"))
            self._app.call_soon(lambda: self._ended(kind, work, then))

        threading.Thread(target=on_thread, name=f"evewatch-{kind}", daemon=True).start()

    def _ended(self, kind: str, work: Work, then: Then) -> None:
        if self._works.get(kind) is not work:
            return
        del self._works[kind]
        then()
        self._app.draw(self._app.bridge.poll())
