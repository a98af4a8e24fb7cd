"""A checklist or an environment, and what came of it, as a document."""

from __future__ import annotations

from typing import Any

from playbooks.reports.document import Column, Document, Facts, Table, named
from playbooks.reports.documents.parts import counted
from playbooks.reports.language import Name

MARKS = {"pass": "☑", "warn": "☑", "fail": "☒", "unknown": "☐"}


def checklist_document(report: dict[str, Any]) -> Document:
    """For people: what is to be so, what was found, who answers for it."""
    items = report["items"]
    table = Table(
        "Items",
        [Column(""), Column("item"), Column("verdict"), Column("found"), Column("owner")],
        [[MARKS[row["verdict"]], row["text"], row["verdict"], _found(row), row["owner"]]
         for row in items],
    )  # fmt: skip
    reasons = Table(
        "Why, what to do, how to undo it",
        [Column("item"), Column("why"), Column("if it is not so"), Column("undo"),
         Column("by hand", named)],
        [[row["text"], row["why"], row["remedy"], row["undo"], row["command"]] for row in items],
    )  # fmt: skip
    counts, signed = counted(report["counts"]), report["signed_off_by"]
    lead = [f"{report['target']}: {report['verdict']} ({counts})"]
    lead += [f"signed off by {signed}"] if signed else []
    return Document(
        report["title"],
        lead,
        background=[report["about"]] if report["about"] else [],
        tables=[table],
        full=reasons,
        facts=[Facts("", [("verdict", f"{report['verdict']} ({counts})")])],
        sentences=[f"{row['text']} → {row['remedy']}" for row in items
                   if row["verdict"] in ("warn", "fail") and row["remedy"]],
        rows=items,
    )  # fmt: skip


def items_document(report: dict[str, Any]) -> Document:
    """Before anybody has looked: every item with its owner, why, and how to undo it."""
    return Document(
        report["title"],
        [report["about"]] if report["about"] else [],
        facts=[Facts(f"☐ {row['text']}", _about(row)) for row in report["items"]],
        rows=report["items"],
    )


def _about(row: dict[str, Any]) -> list[tuple[str, str]]:
    mark = "automatic" if row["kind"] == "auto" else "human"
    facts: list[tuple[str, str]] = [(Name(row["id"]), f"{mark}, {row['severity']}; {row['owner']}")]
    facts += [(n, row[n]) for n in ("why", "remedy", "undo") if row[n]]
    return facts + [("command", Name(row["command"]))] * bool(row["command"])


def _found(row: dict[str, Any]) -> str:
    return f"{row['evidence']}; answered by {row['by']}" if row["by"] else str(row["evidence"])


def environment_document(report: dict[str, Any]) -> Document:
    columns = [Column("verdict"), Column("what"), Column("value"), Column("evidence")]
    rows = [[c["verdict"], c["id"].replace("_", " "), c["value"], c["evidence"]]
            for c in report["checks"]]  # fmt: skip
    verdict = f"{report['verdict']} ({counted(report['counts'])})"
    return Document(
        f"Environment: {report['verdict']}",
        tables=[Table("Checks", columns, rows)],
        facts=[Facts("", [("verdict", verdict)])],
        sentences=[_remedy(check) for check in report["checks"] if check["remedy"]],
        rows=report["checks"],
    )


def _remedy(check: dict[str, Any]) -> str:
    source = f" (source: {check['source']})" if check["source"] else ""
    return f"{check['id'].replace('_', ' ')} → {check['remedy']}{source}"
