"""A playbook's run as the screen sees it: built from the runner's events, no widgets, no threads.

The run lives in the app, not in the screen: it goes on when its screen is left.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from playbooks.runs.events import (
    Announced,
    Event,
    GateJudged,
    PlaybookEnded,
    StepEnded,
    StepProgress,
    StepStarted,
)
from playbooks.runs.spec import Playbook, PlaybookStep

WAITING, RUNNING, SKIPPED = "waiting", "running", "skipped"
"""Of a step, before there is a verdict."""


@dataclass
class StepView:
    step: PlaybookStep
    state: str = WAITING
    """waiting | running | skipped, then the verdict."""
    done: int = 0
    total: int = 0
    text: str = ""
    gates: list[GateJudged] = field(default_factory=list)
    started: float | None = None
    ended: float | None = None

    @property
    def over(self) -> bool:
        return self.state not in (WAITING, RUNNING)

    def seconds(self, now: float) -> float | None:
        """So far, or in all."""
        return None if self.started is None else (self.ended or now) - self.started

    def left(self, now: float) -> float | None:
        """Seconds, at the pace so far or by the step's budget; None where nobody knows."""
        if self.over:
            return 0.0
        spent = self.seconds(now) or 0.0
        if self.state == RUNNING and self.total > 0 and 0 < self.done <= self.total and spent > 1:
            return spent * (self.total - self.done) / self.done
        budget = self.step.budget_s
        return None if budget is None else max(0.0, budget - spent)


class PlaybookRun:
    """`stop` is set to cancel it. All other methods belong to the UI's thread."""

    def __init__(self, playbook: Playbook, now: float) -> None:
        self.playbook, self.started = playbook, now
        self.steps = [StepView(step) for step in playbook.steps]
        self.stop = threading.Event()
        self.ended: float | None = None
        self.report: dict[str, Any] | None = None
        self.error = ""
        self.announced = ""
        """What an engine at a URL is getting."""
        self.note = ""
        """Where the report and the entry in the log are, once they are written."""

    # what happened

    def take(self, event: Event, now: float) -> None:
        match event:
            case Announced(text):
                self.announced = text
            case StepStarted(id=name):
                view = self._step(name)
                view.state, view.started = RUNNING, now
            case StepProgress(name, done, total, text):
                view = self._step(name)
                view.done, view.total, view.text = done, total, text
            case GateJudged(id=name):
                self._step(name).gates.append(event)
            case StepEnded(name, verdict, _, note):
                view = self._step(name)
                view.state, view.text, view.ended = verdict, note, now
            case PlaybookEnded(report):
                self.report = report

    def finished(self, report: dict[str, Any] | None, error: str, now: float) -> None:
        """The runner has returned, or raised."""
        self.report, self.error, self.ended = report or self.report, error, now

    def _step(self, name: str) -> StepView:
        return next(view for view in self.steps if view.step.id == name)

    # how it stands

    @property
    def running(self) -> bool:
        return self.ended is None

    @property
    def cancelled(self) -> bool:
        return self.stop.is_set()

    @property
    def verdict(self) -> str:
        if self.running:
            return "cancelling" if self.cancelled else RUNNING
        if self.report is None:
            return "error"
        return str(self.report["verdict"])

    @property
    def current(self) -> StepView | None:
        return next((view for view in self.steps if view.state == RUNNING), None)

    def seconds(self, now: float) -> float:
        return (self.ended or now) - self.started

    def left(self, now: float) -> float | None:
        """Seconds to the end: of the steps where each is known, else of the whole budget."""
        if not self.running:
            return 0.0
        parts = [view.left(now) for view in self.steps]
        if all(part is not None for part in parts):
            return sum(part for part in parts if part is not None)
        budget = self.playbook.time_budget_s
        return None if budget is None else max(0.0, budget - self.seconds(now))

    @property
    def headline(self) -> str:
        """ "quick_check 2/4", for the header of every screen."""
        over = sum(view.over for view in self.steps)
        return f"{self.playbook.name} {over}/{len(self.steps)}"
