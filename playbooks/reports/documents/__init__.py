"""From a report to its document: one function for each kind of report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playbooks.canary.page import canary_document
from playbooks.reports.document import Column, Document, Table, flat
from playbooks.reports.documents.checklist import checklist_document, environment_document
from playbooks.reports.documents.checks import check_document, selftest_document, soak_document
from playbooks.reports.documents.compare import compare_document
from playbooks.reports.documents.listed import (
    checklists_document,
    diff_document,
    explain_document,
    faults_document,
    log_document,
    model_document,
    models_document,
    playbook_document,
    playbooks_document,
    verify_document,
    watch_document,
)
from playbooks.reports.documents.measured import (
    bench_document,
    calibrate_document,
    load_document,
    profile_document,
    sweep_document,
)
from playbooks.reports.documents.options import options_document
from playbooks.reports.documents.quality import quality_document

MAKERS: dict[str, Callable[[dict[str, Any]], Document]] = {
    "bench": bench_document,
    "calibrate": calibrate_document,
    "canary": canary_document,
    "check": check_document,
    "checklist": checklist_document,
    "checklists": checklists_document,
    "compare": compare_document,
    "environment": environment_document,
    "explain": explain_document,
    "faults": faults_document,
    "load": load_document,
    "log": log_document,
    "log_diff": diff_document,
    "log_verify": verify_document,
    "model": model_document,
    "models": models_document,
    "options": options_document,
    "playbook": playbook_document,
    "playbooks": playbooks_document,
    "profile": profile_document,
    "quality": quality_document,
    "selftest": selftest_document,
    "soak": soak_document,
    "sweep": sweep_document,
    "watch": watch_document,
}


def document(report: dict[str, Any]) -> Document:
    """Of any report; those of unknown kind become a list of their numbers."""
    return MAKERS.get(report.get("kind", ""), _numbers)(report)


def _numbers(report: dict[str, Any]) -> Document:
    table = Table("Result", [Column("field"), Column("value", numeric=True)], flat(report))
    return Document(f"{report.get('kind', 'report')}", tables=[table], rows=[report])
