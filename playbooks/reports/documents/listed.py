"""Documents of lists and look-ups: models, playbooks, checklists, faults, the quick reference."""

from __future__ import annotations

from typing import Any

from playbooks.reports.document import (
    Column,
    Document,
    Facts,
    Table,
    duration,
    named,
    percent,
    plain,
    rate,
    text_of,
    whole,
)
from playbooks.reports.language import Name

SHORT_ID = 8
NAMES = {"id", "name", "file", "its steps", "fault", "cause"}
"""Columns of names."""


def _table(names: tuple[str, ...], rows: list[list[Any]]) -> Table:
    return Table("", [Column(n, named if n in NAMES else plain) for n in names], rows)


def model_document(report: dict[str, Any]) -> Document:
    facts = [(name.replace("_", " "), text_of(value)) for name, value in report.items()
             if name not in ("schema", "kind")]  # fmt: skip
    return Document("Model", facts=[Facts("", facts)], rows=[report])


def models_document(report: dict[str, Any]) -> Document:
    rows = [[row["name"], row["file"], f"{row['bytes'] / 1e6:.0f} MB"] for row in report["models"]]
    notes = [report["note"]] if report["note"] else []
    table = _table(("name", "file", "size"), rows)
    return Document("Models", tables=[table], warnings=notes, rows=report["models"])


def playbooks_document(report: dict[str, Any]) -> Document:
    rows = [[row["name"], row["title"], ", ".join(row["steps"])] for row in report["playbooks"]]
    table = _table(("name", "title", "its steps"), rows)
    return Document("Playbooks", tables=[table], rows=report["playbooks"])


def checklists_document(report: dict[str, Any]) -> Document:
    rows = [[row["name"], row["title"], row["auto"], row["human"]] for row in report["checklists"]]
    table = _table(("name", "title", "automatic", "human"), rows)
    return Document("Checklists", tables=[table], rows=report["checklists"])


def faults_document(report: dict[str, Any]) -> Document:
    rows = [[row["fault"], row["cause"], row["what"]] for row in report["faults"]]
    table = _table(("fault", "cause", "what"), rows)
    return Document("Faults", tables=[table], rows=report["faults"])


def playbook_document(report: dict[str, Any]) -> Document:
    """Steps with all their parameters, gates and conditions, and the metrics there are."""
    budget = report["time_budget_s"]
    limit = f", {budget:.0f} s at most" if budget else ""
    return Document(
        f"{report['name']}: {report['title']}{limit}",
        report["about"].split("\n\n") if report["about"] else [],
        facts=[Facts(f"{step['id']} ({step['kind']}): {step['title']}", _step(step))
               for step in report["steps"]],
        rows=report["steps"],
    )  # fmt: skip


def _step(step: dict[str, Any]) -> list[tuple[str, str]]:
    given = ", ".join(f"{k}={v}" for k, v in step["parameters"].items() if v not in (None, ()))
    facts: list[tuple[str, str]] = [
        ("when", Name(step["when"] or "")), ("with", Name(given)),
    ]  # fmt: skip
    facts += [
        ("gate", f"{gate['metric']} {gate['op']} {gate['value']:g} ({gate['severity']})")
        for gate in step["gates"]
    ]
    return [*((n, text) for n, text in facts if text), ("gives", Name(", ".join(step["metrics"])))]


def explain_document(report: dict[str, Any]) -> Document:
    """Entries that fit, or symptoms that might."""
    if report["entries"]:
        found = [Facts(entry["symptom"], _entry(entry)) for entry in report["entries"]]
        return Document("", facts=found, rows=report["entries"])
    title = f"nothing fits {report['query']!r}; perhaps one of these:" if report["query"] else ""
    return Document(title or "Symptoms", sentences=report["suggestions"])


EFFECT = {"live": "while it runs", "restart": "after a restart"}


def _entry(entry: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("likely", entry["likely"]),
        *(("confirm", Name(command)) for command in entry["confirm"]),
        ("look for", entry["look_for"]),
        ("do", entry["remedy"]),
        ("takes effect", EFFECT[entry["applies"]]),
        ("undo", entry["undo"]),
    ]


def watch_document(report: dict[str, Any]) -> Document:
    """One look at engines elsewhere: a row a target, a sentence a group of several."""
    columns = [
        Column("target"), Column("engine"), Column("state"), Column("model"),
        Column("running", whole, True), Column("waiting", whole, True),
        Column("KV", percent, True), Column("TTFT p50", duration, True),
        Column("tok/s", rate, True), Column("why"),
    ]  # fmt: skip
    groups = [f"{g['name']}: {g['verdict']}" for g in report["groups"] if len(g["replicas"]) > 1]
    rows = [_target(target) for target in report["targets"]]
    return Document("Targets", tables=[Table("", columns, rows)], sentences=groups,
                    rows=report["targets"])  # fmt: skip


def _target(target: dict[str, Any]) -> list[Any]:
    head = [target["name"], target["engine"] or "unknown engine", target["state"]]
    seen = target["snapshot"] if target["state"] == "live" else None
    if seen is None:
        return [*head, None, None, None, None, None, None, target["reason"] or ""]
    return [
        *head, seen["engine"]["model"], seen["batch"]["running"], seen["queue"]["waiting"],
        seen["kv"]["usage"], seen["latency"]["ttft_ms"]["p50"], seen["batch"]["output_tok_s"], "",
    ]  # fmt: skip


# --- the optimization log ------------------------------------------------------------------


def log_document(report: dict[str, Any]) -> Document:
    if not report["records"]:
        some = "no record matches" if report["total"] else f"no records yet in {report['file']}"
        return Document(some)
    rows = [
        [row["id"][:SHORT_ID], row["time"][:16].replace("T", " "), row["decision"],
         len(row["problems"]) or "", row["title"]]
        for row in report["records"]
    ]  # fmt: skip
    table = _table(("id", "time (UTC)", "decision", "problems", "title"), rows)
    return Document("Optimization log", tables=[table], rows=report["records"])


def verify_document(report: dict[str, Any]) -> Document:
    facts = [("verdict", report["verdict"]), *(("", d["text"]) for d in report["damage"])]
    if report["set_aside"]:
        facts.append(("torn", f"{report['set_aside']} lines are kept aside in "
                              f"{report['file']}.torn"))  # fmt: skip
    if report["sealed"] or report["seals_checked"]:
        how = "checked" if report["seals_checked"] else "not checked: EVEWATCH_LOG_KEY is not set"
        facts.append(("sealed", f"{report['sealed']} records, {how}"))
    if report["head"]:
        facts.append(("head", report["head"]))
    title = f"{report['records']} records in {report['file']}"
    return Document(title, facts=[Facts("", facts)], rows=report["damage"])


def diff_document(report: dict[str, Any]) -> Document:
    sides = [
        f"{name}  {side['id'][:SHORT_ID]}  {side['time']}  {side['decision']}  {side['title']}"
        for name, side in (("a", report["a"]), ("b", report["b"]))
    ]
    tables, same = [], []
    for name, title in (("what", "what changed"), ("how", "how"), ("environment", "environment")):
        if report[name]:
            rows = [[row["key"], text_of(row["a"]), text_of(row["b"])] for row in report[name]]
            tables.append(_table((title, "a", "b"), rows))
        else:
            same.append(f"{title}: the same")
    if report["effect"]:
        tables.append(_effects(report["effect"]))
    return Document("Two records", sides, tables=tables, sentences=same, warnings=report["notes"],
                    rows=report["effect"])  # fmt: skip


def _effects(rows: list[dict[str, Any]]) -> Table:
    columns = [Column("effect, after"), Column("a", plain, True), Column("b", plain, True),
               Column("b over a", numeric=True), Column("verdicts")]  # fmt: skip
    cells: list[list[Any]] = [
        [row["metric"], text_of(row["a"]), text_of(row["b"]),
         "–" if row["change"] is None else f"{row['change']:+.1%}",
         f"{row['verdict_a'] or '–'} / {row['verdict_b'] or '–'}"]
        for row in rows
    ]  # fmt: skip
    return Table("", columns, cells)
