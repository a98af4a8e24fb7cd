"""Alerts as they stand, or a test of the ways out, as a document."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from playbooks.reports.document import Column, Document, Table


def alerts_document(report: dict[str, Any]) -> Document:
    firing = [[row["rule"], row["target"], _local(row["since"])] for row in report["firing"]]
    ways = [
        [row["way"], row["delivered"], row["waiting"], row["problem"] or ""]
        for row in report["ways"]
    ]
    silences = [
        [row["rule"], row["target"], _local(row["until"]), row["reason"]]
        for row in report["silences"]
    ]
    tables = [
        Table("Firing", [Column("rule"), Column("target"), Column("since")], firing),
        Table(
            "Ways out",
            [Column("way"), Column("delivered", numeric=True), Column("waiting", numeric=True),
             Column("problem")],
            ways,
        ),
        Table(
            "Silences",
            [Column("rule"), Column("target"), Column("until"), Column("reason")],
            silences,
        ),
    ]  # fmt: skip
    shown = [table for table in tables if table.rows]
    return Document("Alerts", [report["verdict"]], tables=shown, rows=report["firing"])


def _local(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
