"""Runs playbooks for the console, one at a time, each on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from console.bridge import Bridge
from console.control.run_state import PlaybookRun
from engine.errors import EngineError
from playbooks.runs.events import Announced, Event, PlaybookEnded, StepEnded
from playbooks.runs.spec import Playbook

if TYPE_CHECKING:
    from playbooks.checkup.site import Site
    from playbooks.outside.site import UrlSite
    from playbooks.runs.terms import Terms

IDLE_WAIT_S = 30.0
"""So long the requests of our own load may take to end before anything is measured."""
IDLE_LOOK_S = 0.2


class Host(Protocol):
    """What runs need of the app."""

    bridge: Bridge

    @property
    def clock(self) -> Callable[[], float]: ...

    def call_soon(self, do: Callable[[], object]) -> None: ...

    def notify(self, message: str, **options: Any) -> None: ...


class RunManager:
    """Methods are called from the UI's thread; the runner's events come back to it as calls."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self._newest: dict[str, PlaybookRun] = {}
        self._terms: Terms | None = None
        self.last: PlaybookRun | None = None

    def of(self, name: str) -> PlaybookRun | None:
        """The newest run of that playbook."""
        return self._newest.get(name)

    @property
    def terms(self) -> Terms:
        """Those of the last run, until the console is closed."""
        from playbooks.runs.terms import Terms

        return self._terms or Terms()

    @property
    def current(self) -> PlaybookRun | None:
        return self.last if self.last is not None and self.last.running else None

    @property
    def headline(self) -> str:
        return self.current.headline if self.current is not None else ""

    def start(self, playbook: Playbook, terms: Terms) -> PlaybookRun:
        """While another one runs this is a mistake of the caller's."""
        assert self.current is None, "one playbook at a time"
        run = PlaybookRun(playbook, self._app.clock())
        self._newest[playbook.name] = self.last = run
        self._terms = replace(terms, accept=False)  # of one run, and not of the next
        self._app.bridge.measuring(True)
        threading.Thread(
            target=self._work, args=(run, terms), name="evewatch-playbook", daemon=True
        ).start()
        return run

    def cancel(self) -> None:
        """The step that runs is ended as soon as it can be; the report says what was done."""
        if self.current is None:
            self._app.notify("no playbook runs", timeout=2)
            return
        self.current.stop.set()
        self._app.notify(f"cancelling {self.current.playbook.name} …", timeout=3)

    def _work(self, run: PlaybookRun, terms: Terms) -> None:
        report: dict[str, Any] | None = None
        error = ""
        try:
            report = self._run(run, terms)
        except EngineError as failed:
            error = str(failed)
        except Exception as failed:  # a bug must not leave the screen saying "running"
            error = f"{type(failed).__name__}: {failed}"
        self._app.call_soon(lambda: self._ended(run, report, error))

    def _run(self, run: PlaybookRun, terms: Terms) -> dict[str, Any]:
        """On the thread."""
        from playbooks.runs.options import CheckOptions
        from playbooks.runs.runner import run_playbook

        app = self._app
        site = _site(app, run, terms)
        told = set()

        def listen(event: Event) -> None:
            app.call_soon(lambda: self._took(run, event))
            if not run.cancelled or isinstance(event, Announced | StepEnded | PlaybookEnded):
                return
            if event.id not in told:  # once a step: it is cleaning up when it asks again
                told.add(event.id)
                raise Cancelled("cancelled in the console")

        options = CheckOptions(usual=terms.history())
        return run_playbook(run.playbook, site, options, listen)

    def _took(self, run: PlaybookRun, event: Event) -> None:
        run.take(event, self._app.clock())

    def _ended(self, run: PlaybookRun, report: dict[str, Any] | None, error: str) -> None:
        run.finished(report, error, self._app.clock())
        if report is not None:
            run.note = f"The report is in {report['folder']}; the log has an entry."
        self._app.bridge.measuring(False)
        self._app.notify(f"{run.playbook.name}: {run.verdict}", timeout=10)


class Cancelled(KeyboardInterrupt):
    """The operator's Ctrl-C, raised in the playbook's thread: the runner knows what to do."""


def _site(app: Host, run: PlaybookRun, terms: Terms) -> Site | UrlSite:
    """The watched engine at its URL, beside whatever else it serves; or engines of this process
    that share the weights of the console's own, once that is idle."""
    engine = app.bridge.engine
    if engine.reach is not None:
        from playbooks.outside.site import UrlSite

        return UrlSite(engine.reach.url, key=engine.reach.token, care=terms.care())
    from playbooks.checkup.site import Site

    _until_idle(app, run)
    return Site(engine.config, getattr(engine, "loaded", None))


def _until_idle(app: Host, run: PlaybookRun) -> None:
    """Our own load's last requests are to end first; others' requests do not end for us."""
    end = time.monotonic() + IDLE_WAIT_S
    while time.monotonic() < end and not run.cancelled:
        snapshot = app.bridge.engine.snapshot()
        if not snapshot.batch.running and not snapshot.queue.waiting:
            return
        run.stop.wait(IDLE_LOOK_S)
