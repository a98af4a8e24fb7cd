"""The option matrix as a document."""

from __future__ import annotations

from typing import Any

from playbooks.reports.document import Column, Document, Table, change


def options_document(report: dict[str, Any]) -> Document:
    rows = report["options"]
    columns = [Column(n) for n in ("option", "figure", "claim", "risk", "cost")]
    table = Table(
        "Options",
        columns,
        [[_title(r), figure(r), r["claim"], r["risk"], r["cost"]] for r in rows],
    )
    names = ("id", "title", "setting", "available", "gain", "claim", "elsewhere", "source",
             "unmeasured", "risk", "risk_note", "cost", "cost_note", "rollback")  # fmt: skip
    full = Table(
        "Options in full",
        [Column("figure"), *(Column(name.replace("_", " ")) for name in names)],
        [[figure(row), *(row[name] for name in names)] for row in rows],
    )
    return Document(
        "Options", tables=[table], full=full, sentences=[_words(r) for r in rows], rows=rows
    )


def _title(row: dict[str, Any]) -> str:
    return str(row["title"]) if row["available"] else f"{row['title']} (not in this version)"


def _words(row: dict[str, Any]) -> str:
    source = "" if row["measured"] else f" Figure: {row['source']}; here: {row['unmeasured']}."
    return (
        f"{row['title']} ({row['setting']}). {row['gain']}. Risk: {row['risk_note']}. "
        f"Cost: {row['cost_note']}. Back: {row['rollback']}.{source}"
    )


def figure(row: dict[str, Any]) -> str:
    """What it gained here, or what others say."""
    found = row["measured"]
    if found is None:
        return str(row["elsewhere"])
    interval = f"{change(found['low'])} … {change(found['high'])}"
    return (
        f"{found['title']} {change(found['change'])} ({interval}, {found['verdict']}; "
        f"{found['experiment']}{' --quick' if found['quick'] else ''})"
    )
