"""The page for who comes next: what is now, then what happened, what is open, and what to do if."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from math import inf
from typing import Any

from playbooks.reports.document import Column, Document, Facts, Table, duration, named, percent
from playbooks.reports.documents.alerts import budget_table, rule_name
from playbooks.steps.durations import words

Report = dict[str, Any]
APART_S = 120.0
MOST_TOLD = 8


def handover_document(report: Report) -> Document:
    tables = (
        _incidents(report), _changes(report), budget_table(report["budgets"]), _engines(report),
        _silences(report), _open_items(report), _entries(report), _remedies(report),
    )  # fmt: skip
    return Document(
        f"Handover, {_at(report['since'])} to {_at(report['until'])}",
        [f"{report['verdict'][0].upper()}{report['verdict'][1:]}.", *_lead(report)],
        tables=[table for table in tables if table.rows],
        facts=_forecast(report["forecast"]),
        warnings=list(_warnings(report)),
        rows=report["incidents"],
    )


def _lead(report: Report) -> Iterator[str]:
    happened, changed = _happened(report["incidents"]), _changed(len(report["changes"]))
    yield f"{happened}; {changed}. By {report['by'] or 'nobody known'}."
    yield from (_told(several) for several in _together(report["incidents"])[:MOST_TOLD])


def _together(alerts: list[Report]) -> list[list[Report]]:
    """Those of one target that overlap, or nearly, are one thing that happened."""
    found: list[list[Report]] = []
    for one in alerts:
        for several in found:
            end = max(inf if a["ended"] is None else a["ended"] for a in several)
            if several[0]["target"] == one["target"] and one["began"] <= end + APART_S:
                several.append(one)
                break
        else:
            found.append([one])
    return found


def _told(several: list[Report]) -> str:
    """When, how long, where, what fired, and what was done."""
    began, target = _at(several[0]["began"]), several[0]["target"]
    last = max(several, key=lambda one: inf if one["ended"] is None else one["ended"])
    lasted = _lasted(last | {"began": several[0]["began"]})
    rules = ", ".join(dict.fromkeys(one["rule"] for one in several))
    done = "; ".join(dict.fromkeys(deed for one in several for deed in one["done"]))
    if not done:
        return f"{began}, {lasted}, {target}: {rules}. Nothing is written down of it."
    return f"{began}, {lasted}, {target}: {rules}. Done: {done}."


def _happened(alerts: list[Report]) -> str:
    n, still = len(alerts), sum(one["ended"] is None for one in alerts)
    if not alerts:
        return "No alert in this time"
    if not still:
        return f"{n} alert{'s' * (n != 1)} in this time"
    return f"{n} alert{'s' * (n != 1)} in this time, {still} without an end"


def _changed(n: int) -> str:
    return f"{n} change{'s' * (n != 1)}" if n else "nothing was changed"


def _warnings(report: Report) -> Iterator[str]:
    for one in report["firing"]:
        yield f"{one['rule']} fires at {one['target']} since {_at(one['since'])}"
    if report["watched_until"] is not None:
        yield f"nobody keeps watch since {_at(report['watched_until'])}: what fires is as of then"
    for one in report["incidents"]:
        if one["ended"] is None and not one["open"]:
            yield (
                f"{one['rule']} at {one['target']} began {_at(one['began'])}, and no end was told: "
                "the watch ended before, or it was silenced"
            )


def _incidents(report: Report) -> Table:
    columns = [
        Column("began"), Column("lasted"), Column("severity"), Column("alert", rule_name),
        Column("target", named), Column("what"), Column("done meanwhile"),
    ]  # fmt: skip
    rows = [
        [_at(one["began"]), _lasted(one), one["severity"], one["rule"], one["target"],
         _what(one), "; ".join(one["done"]) or "nothing is written down"]
        for one in report["incidents"]
    ]  # fmt: skip
    return Table("What happened", columns, rows)


def _lasted(one: Report) -> str:
    if one["ended"] is not None:
        return words(one["ended"] - one["began"])
    return "goes on" if one["open"] else "no end told"


def _what(one: Report) -> str:
    value = "" if one["value"] is None else f", {_short(one['value'])}"
    return f"{one['reason'] or one['words']}{value}"


def _short(value: float) -> str:
    return f"{value:g}" if value == int(value) else f"{value:.3g}"


def _changes(report: Report) -> Table:
    columns = [Column(name) for name in
               ("at", "what", "why", "what it did", "decision", "how to undo it")]  # fmt: skip
    rows = [
        [_when(one["at"]), "; ".join(one["what"]), one["why"] or "no reason written",
         "; ".join(one["effect"]) or "not measured", _by(one["decision"].replace("_", " "), one),
         one["rollback"] or "not said"]
        for one in report["changes"]
    ]  # fmt: skip
    return Table("What was changed, and what it did", columns, rows)


def _engines(report: Report) -> Table:
    columns = [
        Column("engine", named), Column("state"), Column("running", numeric=True),
        Column("waiting", numeric=True), Column("KV", percent, numeric=True),
        Column("TTFT p99", duration, numeric=True), Column("note"),
    ]  # fmt: skip
    rows = [
        [one["name"], one["state"].replace("_", " "), one.get("running"), one.get("waiting"),
         one.get("kv_usage"), one.get("ttft_p99_ms"), one.get("alarm") or one.get("reason") or ""]
        for one in report["engines"]
    ]  # fmt: skip
    return Table("Engines now", columns, rows)


def _silences(report: Report) -> Table:
    rows = [
        [one["rule"], one["target"], _at(one["until"]), one["reason"]] for one in report["silences"]
    ]
    columns = [Column("rule", rule_name), Column("target", named), Column("until"),
               Column("reason")]  # fmt: skip
    return Table("Silenced", columns, rows)


def _open_items(report: Report) -> Table:
    rows = [[one["list"], one["item"], _by(_at(one["at"]), one)] for one in report["open_items"]]
    return Table("Open checklist items", [Column(n) for n in ("list", "item", "signed off")], rows)


def _entries(report: Report) -> Table:
    rows = [
        [_when(one["at"]), one["title"], "; ".join(one["problems"]), one["by"] or ""]
        for one in report["entries"]
    ]
    return Table("Also in the log", [Column(n) for n in ("at", "entry", "problems", "by")], rows)


def _remedies(report: Report) -> Table:
    rows = [[one["if"], one["then"]] for one in report["remedies"]]
    return Table("What to do if", [Column("if"), Column("then")], rows)


def _forecast(forecast: Report | None) -> list[Facts]:
    if forecast is None:
        return []
    start = datetime.fromisoformat(forecast["start"])
    title = f"Forecast from {start:%a %d %b %H:%M}, {words(forecast['seconds'])}"
    return [Facts(title, [("", text) for text in (*forecast["sentences"], *forecast["warnings"])])]


def _by(text: str, one: Report) -> str:
    return f"{text}, {one['by']}" if one["by"] else text


def _when(at: float | None) -> str:
    return "–" if at is None else _at(at)


def _at(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%a %d %b %H:%M}"
