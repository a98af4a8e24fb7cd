"""Alerts as they stand, or a test of the ways out, as a document."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from playbooks.reports.document import Column, Document, Table, percent
from playbooks.steps.durations import words


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
        budget_table(report["budgets"]),
    ]  # fmt: skip
    shown = [table for table in tables if table.rows]
    return Document("Alerts", [report["verdict"]], tables=shown, rows=report["firing"])


def budget_table(rows: list[dict[str, Any]]) -> Table:
    columns = [
        Column("engine"), Column("objective"), Column("requests", numeric=True),
        Column("missed", numeric=True), Column("spent", percent, numeric=True),
        Column("pace", numeric=True), Column("gone in", numeric=True),
    ]  # fmt: skip
    cells = [
        [row["engine"], promise(row), row["requests"], row["missed"], row["spent"],
         times(row["pace"]), gone(row)]
        for row in rows
    ]  # fmt: skip
    return Table("Budgets", columns, cells)


def promise(row: dict[str, Any]) -> str:
    """ttft within 500 ms: 99 %"""
    limit = "" if row["within_s"] is None else f" within {row['within_s'] * 1e3:g} ms"
    return f"{row['objective']}{limit}: {row['share'] * 100:g} %"


def times(pace: float | None) -> str | None:
    return None if pace is None else f"{pace:.3g} ×"


def gone(row: dict[str, Any]) -> str | None:
    """When a budget is gone at its pace; None: nobody knows."""
    if row["gone_s"] == 0:
        return "gone"
    if row["lasts"] is None:
        return None
    return "lasts" if row["lasts"] else words(row["gone_s"])


def _local(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
