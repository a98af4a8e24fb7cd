"""How far a check is: the rows of its steps, what they found, and the report as it stands now."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from playbooks.checkup.site import Site
from playbooks.diagnosis import INCONCLUSIVE, UNPLANNED, Evidence, Finding, diagnose
from playbooks.outside.announce import Announcement
from playbooks.outside.site import UrlSite
from playbooks.reports.folder import ReportFolder
from playbooks.reports.text import json_values
from playbooks.runs.gates import NOT_TOLD, worst
from playbooks.runs.options import CheckOptions
from playbooks.runs.spec import Playbook, PlaybookStep
from playbooks.runs.view import View
from playbooks.steps.registry import STEP_TYPES

SCHEMA = 1
NOT_AVAILABLE, SKIPPED, ERROR, INTERRUPTED = "not available", "skipped", "error", "interrupted"
COUNTS_AS = {NOT_AVAILABLE: INCONCLUSIVE, NOT_TOLD: INCONCLUSIVE, INTERRUPTED: INCONCLUSIVE}
BLIND = (NOT_AVAILABLE, NOT_TOLD)
"""Of a step that says nothing from outside: it could not be run, or none of its gates be judged."""
Row = dict[str, Any]
"""A step in the report."""


@dataclass
class CheckState:
    playbook: Playbook
    target: Site | UrlSite
    options: CheckOptions
    folder: ReportFolder
    view: View
    rows: list[Row] = field(default_factory=list)
    """Of the steps that have ended, or that were not to be run."""
    evidence: Evidence = field(default_factory=Evidence)
    state: str = "running"
    """running | done | interrupted | failed"""
    problem: str | None = None
    """What ended the run before its end, or the first error of an engine."""
    announced: Announcement | None = None
    started: float = field(default_factory=time.monotonic)
    wall: float = field(default_factory=time.time)

    @property
    def time_budget_s(self) -> float | None:
        return self.options.time_budget_s or self.playbook.time_budget_s

    def left(self, step: PlaybookStep) -> float | None:
        """Seconds for a step: its own budget, within what is left of the playbook's."""
        whole = self.time_budget_s
        left = None if whole is None else self.started + whole - time.monotonic()
        limits = [limit for limit in (left, step.budget_s) if limit is not None]
        return min(limits) if limits else None

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """By step: its metrics and its verdict, as conditions ask for them."""
        return {row["id"]: {**row["metrics"], "verdict": row["verdict"]} for row in self.rows}

    @property
    def done(self) -> set[str]:
        """Kinds of the steps that were to be run."""
        return {row["kind"] for row in self.rows if row["verdict"] != SKIPPED}

    def findings(self) -> list[Finding]:
        """Where no step set out to measure facts, what was seen on the way alone."""
        if not self.playbook.diagnose or self.state == "running":
            return []
        planned = self.view.planned(self.done, self.evidence)
        if planned:
            planned |= {fact for fact in UNPLANNED if getattr(self.evidence, fact) is not None}
        found = [self._with_reasons(one) for one in diagnose(self.evidence, planned)]
        return found if planned else [finding for finding in found if finding.is_problem]

    def _with_reasons(self, finding: Finding) -> Finding:
        """Of evidence that is missing: which steps lack it, and why."""
        left, told = set(finding.missing), []
        for row in self.rows:
            names = [name for name in STEP_TYPES[row["kind"]].facts if name in left]
            ran = any(value is not None for value in row["metrics"].values())
            if names:
                why = row["reason"] or "no reason given"
                told.append(f"{row['id']} did not measure {', '.join(names)}" if ran
                            else f"{row['id']} measured nothing: {why}")  # fmt: skip
            left.difference_update(names)
        return replace(finding, evidence=tuple(told)) if told else finding

    def verdict(self, findings: Sequence[Finding]) -> str:
        verdicts = [str(COUNTS_AS.get(row["verdict"], row["verdict"])) for row in self.rows
                    if row["verdict"] != SKIPPED
                    and not (row["verdict"] in BLIND and self.view.lenient)]  # fmt: skip
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
        findings, target, ended = self.findings(), self.target, {row["id"] for row in self.rows}
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
            "verdict": self.verdict(findings),
            "view": self.view.name,
            "required_view": self.view.required,
            "blind_spots": self.view.blind_spots(self.done, self.evidence),
            "target": about,
            "announced": self.announced.to_dict() if self.announced is not None else None,
            "fault": self.options.inject,
            "withheld": list(self.options.withheld),
            "time_budget_s": self.time_budget_s,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall)),
            "seconds": round(time.monotonic() - self.started, 1),
            "process": os.getpid(),
            "steps": self.rows,
            "not_run": [step.id for step in self.playbook.steps if step.id not in ended],
            "findings": [finding.to_dict() for finding in findings],
            "folder": str(self.folder.path),
            "files": [str(self.folder.json)],
        })  # fmt: skip
        return report
