"""Runs a playbook: its steps in their order, its diagnosis, and its report.

Headless and on no screen's behalf: whoever watches gets events. A step that fails does not stop
the others unless that was asked for, and whatever ends the run (an error, the time budget,
Ctrl-C, kill -9) leaves a report of what was done until then.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from engine.errors import ConfigError, EngineError
from playbooks.checkup.site import Site
from playbooks.faults.faults import inject
from playbooks.outside.announce import announcement_of
from playbooks.outside.site import UrlSite
from playbooks.reports.folder import ReportFolder, own_folder
from playbooks.runs.events import (
    Announced,
    Listener,
    PlaybookEnded,
    StepEnded,
    StepStarted,
    ignore,
)
from playbooks.runs.history import run_of
from playbooks.runs.options import CheckOptions, check_options
from playbooks.runs.spec import Playbook, PlaybookStep
from playbooks.runs.state import ERROR, INTERRUPTED, SKIPPED, CheckState, Row
from playbooks.runs.step_runner import BudgetSpent, StepRunner
from playbooks.runs.view import INSIDE, OUTSIDE, View
from playbooks.steps.models import LoadStep
from playbooks.usual import KeptRun, better, figures_of

AS_WRITTEN = CheckOptions()
"""As the playbook says, and nothing else."""
SHORT = ("load", "profile")
"""Kinds of steps that are run once more before they are called slower than usual."""
log = logging.getLogger("evewatch.playbooks")


def run_playbook(
    playbook: Playbook,
    target: Site | UrlSite,
    options: CheckOptions = AS_WRITTEN,
    listener: Listener = ignore,
) -> dict[str, Any]:
    """Run it and return the report, which is also in its folder.

    Raises ConfigError for options that do not fit, before anything runs. Errors of steps, Ctrl-C
    and signals that raise are in the report and are not raised.
    """
    check_options(playbook, target, options)
    folder = ReportFolder(options.folder or own_folder(playbook.name))
    view = View(OUTSIDE if isinstance(target, UrlSite) else INSIDE, options.require)
    return _PlaybookRun(CheckState(playbook, target, options, folder, view), listener).run()


class _PlaybookRun:
    def __init__(self, check: CheckState, listener: Listener) -> None:
        self._check, self._tell = check, listener
        self._steps = StepRunner(check, listener)
        self._today: KeptRun | None = None
        """Its figures, once all steps are done."""

    def run(self) -> dict[str, Any]:
        check = self._check
        check.folder.write(check.report())
        try:
            self._prepare()
            self._announce()
            with check.target.watched() if isinstance(check.target, UrlSite) else nullcontext():
                self._all_steps()
            if isinstance(check.target, UrlSite):  # what a step saw that was stopped, too
                check.evidence = check.evidence.having(check.target.facts())
            self._hold_against_usual()
            check.state = "done"
        except KeyboardInterrupt as error:
            check.state, check.problem = INTERRUPTED, str(error) or "interrupted"
        except EngineError as error:
            check.state, check.problem = "failed", str(error)
        except Exception as error:
            log.exception("the playbook broke")
            check.state, check.problem = "failed", f"{type(error).__name__}: {error}"
        finally:
            report = check.report()
            check.folder.write(report)
        return self._finish(report)

    def _finish(self, report: dict[str, Any]) -> dict[str, Any]:
        check = self._check
        report["files"] = [str(path) for path in check.folder.files]
        check.folder.finish(report)
        self._keep_log(report)
        if self._today is not None and check.options.usual is not None:
            check.options.usual.keep(self._today, report["verdict"])
        self._tell(PlaybookEnded(report))
        return report

    def _prepare(self) -> None:
        """The fault goes in before the first step."""
        check = self._check
        if check.options.inject is not None and isinstance(check.target, Site):
            steps = check.playbook.steps
            load = next((s.parameters for s in steps if s.kind == "load"), LoadStep())
            check.target = inject(check.options.inject, check.target, load)

    def _announce(self) -> None:
        """What a target at a URL is going to get, before it gets anything."""
        check, target = self._check, self._check.target
        if isinstance(target, UrlSite):
            check.announced = announcement_of(check.playbook, target)
            self._tell(Announced(check.announced.text(check.time_budget_s)))

    def _all_steps(self) -> None:
        steps = self._check.playbook.steps
        stopped: tuple[str, str] | None = None
        for number, step in enumerate(steps, 1):
            self._tell(StepStarted(step.id, step.kind, step.title, number, len(steps)))
            why = stopped or self._steps.why_not(step)
            if why is not None:
                row, interrupt = self._steps.skip(step, *why), None
            else:
                row, interrupt = self._steps.run(step)
            self._take(row)
            if interrupt is not None:
                raise interrupt
            if row["verdict"] in ("fail", ERROR) and self._stops(step):
                stopped = SKIPPED, f"{step.id} failed and the rest was to wait"

    def _stops(self, step: PlaybookStep) -> bool:
        """Whether the steps after it wait where it fails."""
        if step.stop_on_fail is not None:
            return step.stop_on_fail
        going = self._check.options.keep_going
        return not (self._check.playbook.continue_on_fail if going is None else going)

    def _take(self, row: Row) -> None:
        """Into the report and onto the disk."""
        self._check.rows.append(row)
        self._check.folder.write(self._check.report())
        self._tell(StepEnded(row["id"], row["verdict"], row["seconds"], row["reason"]))

    # --- what is usual ------------------------------------------------------------------------

    def _hold_against_usual(self) -> None:
        """What looks slower is measured once more: a disturbance passes, a slower engine stays."""
        check, history = self._check, self._check.options.usual
        if history is None or check.options.inject is not None:
            return
        today = run_of(check.playbook, check.target, check.rows, check.evidence)
        found = history.beside(today, check.evidence)
        if found is not None and found.slower:
            slow = {one.name.partition(".")[0] for one in found.slower}
            today = replace(today, figures=better(today.figures, self._once_more(slow)))
            found = history.beside(today, check.evidence)
        self._today = today
        check.evidence = check.evidence.having({"usual": found})

    def _once_more(self, names: Container[str]) -> dict[str, float]:
        """Figures of the short ones of these steps; none of one that fails or has no time."""
        figures: dict[str, float] = {}
        for step in self._check.playbook.steps:
            left = self._check.left(step)
            if step.id not in names or step.kind not in SHORT or (left is not None and left <= 0):
                continue
            try:
                outcome = self._steps.call(step)
            except (BudgetSpent, ConfigError, EngineError) as error:
                log.info("%s once more: %s", step.id, error)
            else:
                figures |= figures_of([{"id": step.id, "metrics": outcome.metrics}])
        return figures

    def _keep_log(self, report: dict[str, Any]) -> None:
        if not self._check.options.log:
            return
        from playbooks.optlog import OptLog
        from playbooks.optlog.checklog import record_of

        target = self._check.target
        config = target.config if isinstance(target, Site) else None
        try:
            OptLog().append(record_of(report, config))
        except ConfigError as error:
            log.warning("not in the log: %s", error)
