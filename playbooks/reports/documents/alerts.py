"""Alerts as they stand, or a test of the ways out, as a document."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from playbooks.reports.document import Cell, Column, Document, Table, named, percent, plain
from playbooks.steps.durations import words


def rule_name(value: Cell) -> str:
    """One of a file is a name; those that come with objectives are words."""
    return plain(value) if " " in str(value) else named(value)


OF_RULE = (Column("rule", rule_name), Column("target", named))


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
        Table("Firing", [*OF_RULE, Column("since")], firing),
        Table(
            "Ways out",
            [Column("way", named), Column("delivered", numeric=True),
             Column("waiting", numeric=True),
             Column("problem")],
            ways,
        ),
        Table(
            "Silences",
            [*OF_RULE, Column("until"), Column("reason")],
            silences,
        ),
        budget_table(report["budgets"]),
    ]  # fmt: skip
    shown = [table for table in tables if table.rows]
    return Document("Alerts", [report["verdict"]], tables=shown, rows=report["firing"])


def replay_document(report: dict[str, Any]) -> Document:
    """What rules would have told on a recording."""
    messages = report["messages"]
    onsets = sum(one["state"] == "firing" for one in messages)
    verdict = f"{onsets} alert{'s' * (onsets != 1)} in {words(report['seconds'])}"
    if still := len(report["firing"]):
        verdict += f", {still} without an end"
    rows = [
        [_local(one["time"]), one["severity"], one["state"], one["rule"], _value(one), one["words"]]
        for one in messages
    ]
    columns = [Column("told"), Column("severity"), Column("state"), Column("rule", rule_name),
               Column("value", numeric=True), Column("what")]  # fmt: skip
    table = Table("What would have been told", columns, rows)
    title = f"Alerts on {report['recording']}"
    return Document(title, [f"{verdict}; {len(report['rules'])} rules"],
                    tables=[table] if rows else [], rows=messages)  # fmt: skip


def _value(message: dict[str, Any]) -> Any:
    (target, *_) = message["targets"]
    return target["value"] if target["reason"] is None else target["reason"]


def budget_table(rows: list[dict[str, Any]]) -> Table:
    columns = [
        Column("engine", named), Column("objective"), Column("counted", numeric=True),
        Column("missed", numeric=True), Column("spent", percent, numeric=True),
        Column("pace", numeric=True), Column("gone in", numeric=True),
    ]  # fmt: skip
    cells = [
        [row["engine"], promise(row), *_counted(row), row["spent"],
         times(row["pace"]), gone(row)]
        for row in rows
    ]  # fmt: skip
    return Table("Budgets", columns, cells)


def _counted(row: dict[str, Any]) -> tuple[Any, Any]:
    """Of how much how much was missed."""
    if row["unit"] == "seconds":
        return words(row["total"]), words(row["missed"])
    return row["total"], row["missed"]


def promise(row: dict[str, Any]) -> str:
    """ttft within 500 ms: 99 %"""
    share = row["share"] * 100
    match row["objective"]:
        case "availability":
            return f"served: {share:g} %"
        case "reachable":
            return f"up: {share:g} %"
    return f"{row['objective']} within {row['within_s'] * 1e3:g} ms: {share:g} %"


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
