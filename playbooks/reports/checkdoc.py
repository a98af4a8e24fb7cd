"""A checklist, and what came of it, as a document and as a record of the log."""

from __future__ import annotations

from typing import Any

from playbooks.optlog.provenance import provenance_of
from playbooks.optlog.record import Record
from playbooks.reports.document import Column, Document, Table

MARKS = {"pass": "☑", "warn": "☑", "fail": "☒", "unknown": "☐"}
DECISIONS = {"pass": "adopt", "warn": "adopt"}
"""What a signed-off list means for what it is about; all else is on hold."""


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
         Column("by hand")],
        [[row["text"], row["why"], row["remedy"], row["undo"], row["command"]] for row in items],
    )  # fmt: skip
    counts = ", ".join(f"{n} {verdict}" for verdict, n in report["counts"].items() if n)
    signed = report["signed_off_by"]
    lead = [f"{report['target']}: {report['verdict']} ({counts})"]
    lead += [f"signed off by {signed}"] if signed else []
    return Document(
        report["title"],
        lead,
        background=[report["about"]] if report["about"] else [],
        tables=[table],
        full=reasons,
        rows=items,
    )


def _found(row: dict[str, Any]) -> str:
    by = f" ({row['by']})" if row["by"] else ""
    return f"{row['evidence']}{by}"


def checklist_record(report: dict[str, Any], artifacts: tuple[str, ...] = ()) -> Record:
    """Of a list that somebody has signed off, with everything that was still open."""
    still_open = [row for row in report["items"] if row["verdict"] != "pass"]
    return Record(
        title=f"Checklist {report['name']} signed off: {report['verdict']}",
        why=report["title"],
        how={
            "command": "checklist",
            "target": report["target"],
            **report["counts"],
            "items": [
                {"item": row["id"], "verdict": row["verdict"], "found": row["evidence"],
                 "by": row["by"] or ("tool" if row["kind"] == "auto" else None)}
                for row in report["items"]
            ],
        },
        problems=tuple(
            f"{row['severity']} {row['verdict']}: {row['text']} ({row['evidence']})"
            for row in still_open
        ),
        decision=DECISIONS.get(report["verdict"], "hold"),
        operator=report["signed_off_by"],
        environment=provenance_of(),
        artifacts=artifacts,
    )  # fmt: skip
