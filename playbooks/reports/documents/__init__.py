"""From a report to its document: one function for each kind of report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playbooks.reports.document import Column, Document, Table, flat
from playbooks.reports.documents import (
    alerts,
    canary,
    checklist,
    checks,
    compare,
    forecast,
    forecast_fit,
    forecast_score,
    handover,
    listed,
    measured,
    options,
    quality,
)

MAKERS: dict[str, Callable[[dict[str, Any]], Document]] = {
    "alerts": alerts.alerts_document,
    "alerts_replay": alerts.replay_document,
    "bench": measured.bench_document,
    "calibrate": measured.calibrate_document,
    "canary": canary.canary_document,
    "check": checks.check_document,
    "checklist": checklist.checklist_document,
    "checklists": listed.checklists_document,
    "compare": compare.compare_document,
    "environment": checklist.environment_document,
    "explain": listed.explain_document,
    "faults": listed.faults_document,
    "forecast": forecast.forecast_document,
    "forecast_fit": forecast_fit.fit_document,
    "forecast_score": forecast_score.score_document,
    "handover": handover.handover_document,
    "load": measured.load_document,
    "log": listed.log_document,
    "log_diff": listed.diff_document,
    "log_verify": listed.verify_document,
    "model": listed.model_document,
    "models": listed.models_document,
    "options": options.options_document,
    "playbook": listed.playbook_document,
    "playbooks": listed.playbooks_document,
    "profile": measured.profile_document,
    "quality": quality.quality_document,
    "selftest": checks.selftest_document,
    "soak": checks.soak_document,
    "sweep": measured.sweep_document,
    "watch": listed.watch_document,
}


def document(report: dict[str, Any]) -> Document:
    """Of any report; those of unknown kind become a list of their numbers."""
    return MAKERS.get(report.get("kind", ""), _numbers)(report)


def _numbers(report: dict[str, Any]) -> Document:
    table = Table("Result", [Column("field"), Column("value", numeric=True)], flat(report))
    return Document(f"{report.get('kind', 'report')}", tables=[table], rows=[report])
