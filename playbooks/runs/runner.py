"""Runs a playbook: its steps in their order, its gates, its diagnosis, and its report.

Headless and on no screen's behalf: whoever watches gets events. A step that fails does not stop
the others unless that was asked for, and whatever ends the run (an error, the time budget,
Ctrl-C, kill -9) leaves a report of what was done until then.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Container, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, EngineError
from playbooks.checkup.site import Site
from playbooks.diagnosis import FACTS, HISTORY, INCONCLUSIVE, Evidence, Finding, diagnose
from playbooks.faults.faults import check_fault, inject
from playbooks.outside.announce import Announcement, announced
from playbooks.outside.answers import check_files
from playbooks.outside.care import GuardTripped
from playbooks.outside.site import UrlSite
from playbooks.reports.folder import ReportFolder, own_folder
from playbooks.reports.text import json_values
from playbooks.runs.events import (
    Announced,
    GateJudged,
    Listener,
    PlaybookEnded,
    StepEnded,
    StepProgress,
    StepStarted,
    ignore,
)
from playbooks.runs.gates import NOT_TOLD, judge_all, worst
from playbooks.runs.history import History, run_of
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.spec import Playbook, PlaybookStep
from playbooks.runs.view import INSIDE, OUTSIDE, View
from playbooks.steps.metrics import RENAMED
from playbooks.steps.models import LoadStep, QualityStep
from playbooks.usual import KeptRun, better, figures_of

SCHEMA = 1
NOT_AVAILABLE, SKIPPED, ERROR, INTERRUPTED = "not available", "skipped", "error", "interrupted"
SHORT = ("load", "profile")
"""Kinds of steps that are run once more before they are called slower than usual."""
COUNTS_AS = {NOT_AVAILABLE: INCONCLUSIVE, INTERRUPTED: INCONCLUSIVE}
log = logging.getLogger("evewatch.playbooks")


@dataclass(frozen=True)
class CheckOptions:
    time_budget_s: float | None = None
    """Instead of the playbook's."""
    withheld: tuple[str, ...] = ()
    """Metrics that are taken away, as if they could not be measured."""
    inject: str | None = None
    """A fault to put into the engine first."""
    folder: Path | None = None
    """For the report; None: one of the user's own."""
    log: bool = True
    """Write one record to the optimization log."""
    keep_going: bool | None = None
    """After a failed step; None: as the playbook says."""
    require: str = OUTSIDE
    """inside: against a URL, what only the inside of an engine tells counts as missing."""
    usual: History | None = None
    """Where the figures of healthy runs are; None: this one is held against none, and not kept."""


class BudgetSpent(Exception):
    """The time for a step is over."""


def run_playbook(
    playbook: Playbook,
    target: Site | UrlSite,
    options: CheckOptions = CheckOptions(),
    listener: Listener = ignore,
) -> dict[str, Any]:
    """Run it and return the report, which is also in its folder.

    Raises ConfigError for options that do not fit, before anything runs. Errors of steps, Ctrl-C
    and signals that raise are in the report and are not raised.
    """
    check_options(playbook, target, options)
    folder = ReportFolder(options.folder or own_folder(playbook.name))
    view = View(OUTSIDE if isinstance(target, UrlSite) else INSIDE, options.require)
    return _PlaybookRun(playbook, target, options, listener, folder, view).run()


def check_options(playbook: Playbook, target: Site | UrlSite, options: CheckOptions) -> None:
    for name in options.withheld:
        if name in RENAMED:
            raise ConfigError(f"withhold {name}: it is called {RENAMED[name]} now")
        if name not in playbook.judged:
            raise ConfigError(
                f"withhold {name}: nothing in {playbook.name} looks at it; it looks at "
                f"{', '.join(sorted(playbook.judged))}"
            )
    if options.usual is not None:
        options.usual.check()
    if options.inject is not None:
        if isinstance(target, UrlSite):
            raise ConfigError("inject: faults go into the embedded engine only, not behind a URL")
        check_fault(options.inject)
    for step in playbook.steps:
        if isinstance(target, UrlSite) and isinstance(step.parameters, QualityStep):
            check_files(step.parameters)


@dataclass
class _PlaybookRun:
    playbook: Playbook
    target: Site | UrlSite
    options: CheckOptions
    listener: Listener
    folder: ReportFolder
    view: View
    steps: list[dict[str, Any]] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    state: str = "running"
    started: float = field(default_factory=time.monotonic)
    wall: float = field(default_factory=time.time)
    announced: Announcement | None = None
    problem: str | None = None
    """What ended the run before its end."""
    today: KeptRun | None = None
    """Its figures, once all steps are done."""

    # --- the run ----------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        self.folder.write(self.report())
        try:
            self._prepare()
            self._announce()
            with self.target.watched() if isinstance(self.target, UrlSite) else nullcontext():
                self._all_steps()
            self._hold_against_usual()
            self.state = "done"
        except KeyboardInterrupt as error:
            self.state, self.problem = INTERRUPTED, str(error) or "interrupted"
        except EngineError as error:
            self.state, self.problem = "failed", str(error)
        except Exception as error:
            log.exception("the playbook broke")
            self.state, self.problem = "failed", f"{type(error).__name__}: {error}"
        finally:
            report = self.report()
            self.folder.write(report)
        report["files"] = [str(path) for path in self.folder.files]
        self.folder.finish(report)
        self._keep_log(report)
        if self.today is not None and self.options.usual is not None:
            self.options.usual.keep(self.today, report["verdict"])
        self.listener(PlaybookEnded(report))
        return report

    def _prepare(self) -> None:
        """The fault goes in before the first step."""
        if self.options.inject is not None and isinstance(self.target, Site):
            load = next((s.parameters for s in self.playbook.steps if s.kind == "load"), LoadStep())
            self.target = inject(self.options.inject, self.target, load)

    def _announce(self) -> None:
        """What a target at a URL is going to get, before it gets anything."""
        if isinstance(self.target, UrlSite):
            steps = [s.parameters for s in self.playbook.steps if s.type.on_url]
            group = len(self.target.group)
            self.announced = announced(steps, self.target.care.disruptive, group)
            budget = self.options.time_budget_s or self.playbook.time_budget_s
            self.listener(Announced(self.announced.text(budget)))

    def _all_steps(self) -> None:
        stopped: tuple[str, str] | None = None
        for number, step in enumerate(self.playbook.steps, 1):
            why = stopped or self._why_not(step)
            self.listener(
                StepStarted(step.id, step.kind, step.title, number, len(self.playbook.steps))
            )
            row = self._skip(step, *why) if why is not None else self._step(step)
            if row["verdict"] == NOT_AVAILABLE and why is not None:
                self.view.could_not_run(step.id, step.kind)
            self._take(row)
            going = self.playbook.continue_on_fail
            if self.options.keep_going is not None:
                going = self.options.keep_going
            stop = not going if step.stop_on_fail is None else step.stop_on_fail
            if stop and row["verdict"] in ("fail", ERROR):
                stopped = SKIPPED, f"{step.id} failed and the rest was to wait"

    def _hold_against_usual(self) -> None:
        """What looks slower is measured once more: a disturbance passes, a slower engine stays."""
        history = self.options.usual
        if history is None or self.options.inject is not None:
            return
        where = self.target
        settings, url = (
            (where.config.to_dict(), None) if isinstance(where, Site) else (None, where.spec.base)
        )
        self.today = run_of(self.playbook, settings, url, self.steps, self.evidence)
        found = history.beside(self.today, self.evidence)
        if found is not None and found.slower:
            slow = {one.name.partition(".")[0] for one in found.slower}
            figures = better(self.today.figures, self._once_more(slow))
            self.today = replace(self.today, figures=figures)
            found = history.beside(self.today, self.evidence)
        self.evidence = self.evidence.having({"usual": found})

    def _once_more(self, names: Container[str]) -> dict[str, float]:
        """Figures of the short ones of these steps; none of one that fails or has no time."""
        figures: dict[str, float] = {}
        for step in self.playbook.steps:
            left = self._left(step)
            if step.id not in names or step.kind not in SHORT or (left is not None and left <= 0):
                continue
            try:
                outcome = self._call(step)
            except (BudgetSpent, ConfigError, EngineError) as error:
                log.info("%s once more: %s", step.id, error)
            else:
                figures |= figures_of([{"id": step.id, "metrics": outcome.metrics}])
        return figures

    def _why_not(self, step: PlaybookStep) -> tuple[str, str] | None:
        """(verdict, reason) for a step that is not to be run, or None."""
        left = self._left(step)
        if left is not None and left <= 0:
            return INCONCLUSIVE, "the time budget is spent"
        if step.when is not None:
            holds = step.when.holds(self.results)
            if holds is None:
                return INCONCLUSIVE, f"its condition cannot be known: {step.when.text}"
            if not holds:
                return SKIPPED, f"its condition does not hold: {step.when.text}"
        if isinstance(self.target, UrlSite) and not step.type.on_url:
            return NOT_AVAILABLE, "it needs the inside of the engine, and the target is a URL"
        return None

    def _left(self, step: PlaybookStep) -> float | None:
        """Seconds for a step: its own budget, within what is left of the playbook's."""
        whole = self.options.time_budget_s or self.playbook.time_budget_s
        left = None if whole is None else self.started + whole - time.monotonic()
        limits = [limit for limit in (left, step.budget_s) if limit is not None]
        return min(limits) if limits else None

    # --- one step -----------------------------------------------------------------------------

    def _step(self, step: PlaybookStep) -> dict[str, Any]:
        start = time.monotonic()
        row = self._row(step)
        try:
            outcome = self._call(step)
        except (BudgetSpent, GuardTripped) as spent:
            row |= {"verdict": INCONCLUSIVE, "reason": str(spent)}
        except KeyboardInterrupt:
            row |= {"verdict": INTERRUPTED, "reason": "interrupted", **_spent(start)}
            self._take(row)
            raise
        except ConfigError as error:
            row |= {"verdict": ERROR, "reason": str(error)}
        except EngineError as error:
            row |= {"verdict": ERROR, "reason": str(error)}
            self.problem = self.problem or str(error)
        except Exception as error:
            log.exception("step %s broke", step.id)
            row |= {"verdict": ERROR, "reason": f"{type(error).__name__}: {error}"}
        else:
            row |= self._judged(step, outcome) | _spent(start)
            if outcome.interrupted:
                row["verdict"], row["reason"] = INTERRUPTED, "interrupted"
                self._take(row)
                raise KeyboardInterrupt
        return row | _spent(start)

    def _call(self, step: PlaybookStep) -> StepOutcome:
        run = step.type.procedure(at_url=isinstance(self.target, UrlSite))
        result: StepOutcome = run(self.target, step.parameters, self._clock(step))
        return result

    def _clock(self, step: PlaybookStep) -> StepClock:
        left = self._left(step)
        end = None if left is None else time.monotonic() + left

        def show(done: int, total: int) -> None:
            self.listener(StepProgress(step.id, done, total))

        def check(done: int, total: int) -> None:
            show(done, total)
            if end is not None and time.monotonic() > end and done < total:
                raise BudgetSpent(f"its time is over after {done} of {total}")

        return StepClock(left, show, check, self.options.log)

    def _judged(self, step: PlaybookStep, outcome: StepOutcome) -> dict[str, Any]:
        metrics = {k: v for k, v in outcome.metrics.items() if k not in self.options.withheld}
        known = step.type.metrics
        excused = self.view.excused(outcome.not_told, self.options.withheld)
        judged = judge_all(step.gates, metrics, excused)
        self.view.saw(step.id, judged)
        for one in judged:
            self.listener(GateJudged(step.id, one.gate.metric, one.verdict, one.evidence))
        self.evidence = self.evidence.having({k: v for k, v in metrics.items() if k in FACTS})
        return {
            "verdict": _of_gates([one.verdict for one in judged], outcome.doubts),
            "gates": [one.to_dict() for one in judged],
            "metrics": {name: metrics.get(name) for name in known},
            "reason": "; ".join((*outcome.doubts, outcome.note)),
            "report": outcome.report,
        }

    def _row(self, step: PlaybookStep) -> dict[str, Any]:
        return {
            "id": step.id,
            "kind": step.kind,
            "title": step.title,
            "verdict": INCONCLUSIVE,
            "reason": "",
            "gates": [],
            "metrics": {},
            "parameters": asdict(step.parameters),
            "report": None,
            "seconds": 0.0,
        }

    def _skip(self, step: PlaybookStep, verdict: str, reason: str) -> dict[str, Any]:
        """A gate of a step that was not run is not passed either."""
        inside = verdict == NOT_AVAILABLE and self.view.lenient
        excused = frozenset(gate.metric for gate in step.gates) if inside else frozenset[str]()
        judged = judge_all(step.gates, {}, excused) if verdict != SKIPPED else []
        gates = [one.to_dict() for one in judged]
        return self._row(step) | {"verdict": verdict, "reason": reason, "gates": gates}

    def _take(self, row: dict[str, Any]) -> None:
        """Into the report, once, and onto the disk."""
        if any(known["id"] == row["id"] for known in self.steps):
            return
        self.steps.append(row)
        self.results[row["id"]] = {**row["metrics"], "verdict": row["verdict"]}
        self.folder.write(self.report())
        self.listener(StepEnded(row["id"], row["verdict"], row["seconds"], row["reason"]))

    # --- what came of it ------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        if not self.playbook.diagnose or self.state == "running":
            return []
        planned = self.view.planned(self._done(), self.evidence)
        if planned and self.evidence.usual is not None:
            planned |= set(HISTORY)
        return diagnose(self.evidence, planned) if planned else []

    def _done(self) -> set[str]:
        """Kinds of the steps that were to be run."""
        return {row["kind"] for row in self.steps if row["verdict"] != SKIPPED}

    def _verdict(self, findings: Sequence[Finding]) -> str:
        verdicts = [COUNTS_AS.get(row["verdict"], row["verdict"]) for row in self.steps
                    if row["verdict"] != SKIPPED
                    and not (row["verdict"] == NOT_AVAILABLE and self.view.lenient)]  # fmt: skip
        if any(finding.is_problem for finding in findings):
            verdicts.append("fail")
        if any(finding.cause == INCONCLUSIVE for finding in findings):
            verdicts.append(INCONCLUSIVE)
        if self.state == "failed":
            verdicts.append(ERROR)
        elif self.state != "done":
            verdicts.append(INCONCLUSIVE)
        return worst(verdicts)

    def report(self) -> dict[str, Any]:
        """As it stands now, ready for JSON."""
        findings = self.findings()
        target = self.target
        about = (
            {"kind": "url", "url": target.spec.address.shown}
            if isinstance(target, UrlSite)
            else {"kind": "embedded", "config": target.config.to_dict()}
        )
        report: dict[str, Any] = json_values({
            "schema": SCHEMA,
            "kind": "check",
            "name": self.playbook.name,
            "title": self.playbook.title,
            "state": self.state,
            "problem": self.problem,
            "verdict": self._verdict(findings),
            "view": self.view.name,
            "required_view": self.view.required,
            "blind_spots": self.view.blind_spots(self._done(), self.evidence),
            "target": about,
            "announced": self.announced.to_dict() if self.announced is not None else None,
            "fault": self.options.inject,
            "withheld": list(self.options.withheld),
            "time_budget_s": self.options.time_budget_s or self.playbook.time_budget_s,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall)),
            "seconds": round(time.monotonic() - self.started, 1),
            "process": os.getpid(),
            "steps": self.steps,
            "not_run": [s.id for s in self.playbook.steps if s.id not in self.results],
            "findings": [finding.to_dict() for finding in findings],
            "folder": str(self.folder.path),
            "files": [str(self.folder.json)],
        })  # fmt: skip
        return report

    def _keep_log(self, report: dict[str, Any]) -> None:
        if not self.options.log:
            return
        from playbooks.optlog import OptLog
        from playbooks.optlog.checklog import record_of

        config = self.target.config if isinstance(self.target, Site) else None
        try:
            OptLog().append(record_of(report, config))
        except ConfigError as error:
            log.warning("not in the log: %s", error)


def _of_gates(verdicts: Sequence[str], doubts: Sequence[str]) -> str:
    """Of a step that ran: what is not told counts neither way; without gates it has passed."""
    told = [verdict for verdict in verdicts if verdict != NOT_TOLD]
    if verdicts and not told and not doubts:
        return NOT_AVAILABLE
    return worst([*told, *(INCONCLUSIVE for _ in doubts)]) if told or doubts else "pass"


def _spent(start: float) -> dict[str, float]:
    return {"seconds": round(time.monotonic() - start, 2)}
