"""What the page says, as a report: what is, what happened, what was done, what is open, what is to
come, and what to do if."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.snapshot import Snapshot
from playbooks.alerts.burn import comes_with_objectives
from playbooks.alerts.silences import Silence
from playbooks.handover.incidents import Incident, change_of, incidents, is_alert, when
from playbooks.objectives.budget import Budget
from playbooks.optlog.byhand import user
from playbooks.optlog.page import change_of as effect_change
from playbooks.optlog.record import LogEffect, Record
from playbooks.reports.document import text_of

Report = dict[str, Any]
SCHEMA = 1
LOOK = "evewatch watch --once URL says why; evewatch explain --help lists symptoms"
SEARCH = (
    "evewatch explain lists symptoms and causes; evewatch check quick_check measures which it is"
)
CHECKLISTS_S = 14 * 86_400.0
"""A list that was signed off longer ago is no longer open work."""


def handover(
    records: Sequence[Record],
    since: float,
    now: float,
    *,
    watch: Mapping[str, Any] | None = None,
    engines: Mapping[str, Snapshot] | None = None,
    budgets: Mapping[str, Sequence[Budget]] | None = None,
    silences: Sequence[Silence] = (),
    forecast: Mapping[str, Any] | None = None,
) -> Report:
    """`records` are the whole log; times are Unix s. `watch` is what the last watchkeeper kept,
    `engines` what is seen of them now, `forecast` the report of the newest one."""
    watch = watch or {}
    firing = list(watch.get("firing", ()))
    happened = incidents(records, since, now)
    recent = [r for r in records if (at := when(r)) is not None and since <= at <= now]
    report: Report = {
        "schema": SCHEMA,
        "kind": "handover",
        "since": since,
        "until": now,
        "by": user(),
        "firing": firing,
        "watched": bool(watch),
        "watched_until": watch.get("ended"),
        "engines": _engines(watch, engines or {}),
        "budgets": [
            {"engine": name} | one.to_dict() for name, all_of in (budgets or {}).items()
            for one in all_of
        ],
        "silences": [asdict(one) for one in silences if one.until > now],
        "incidents": [_incident(one, firing) for one in happened],
        "changes": [_change(record) for record in recent if record.what],
        "entries": [_entry(r) for r in recent if not r.what and not is_alert(r)],
        "open_items": _open_items(records, now),
        "forecast": _forecast(forecast),
        "remedies": _remedies(watch, happened, recent),
    }  # fmt: skip
    return report | {"verdict": _verdict(report)}


def _engines(watch: Mapping[str, Any], seen: Mapping[str, Snapshot]) -> list[Report]:
    """As they are seen now, else the states that were seen last."""
    if seen:
        return [
            {"name": name, "state": s.source.state.value, "reason": s.source.reason,
             "model": s.engine.model, "running": s.batch.running, "waiting": s.queue.waiting,
             "kv_usage": s.kv.usage, "ttft_p99_ms": s.latency.ttft_ms.p99,
             "alarm": s.engine.alarm}
            for name, s in seen.items()
        ]  # fmt: skip
    targets = watch.get("targets")
    found = targets if isinstance(targets, dict) else {}
    return [{"name": name, "state": state} for name, state in found.items()]


def _incident(one: Incident, firing: Sequence[Mapping[str, Any]]) -> Report:
    is_open = any((f["rule"], f["target"]) == (one.rule, one.target) for f in firing)
    return asdict(one) | {"open": is_open and one.ended is None, "done": list(one.done)}


def _change(record: Record) -> Report:
    return _entry(record) | {
        "what": [change_of(one) for one in record.what],
        "effect": [_effect(one) for one in record.effect],
        "decision": record.decision,
        "rollback": record.rollback,
        "why": record.why,
    }


def _effect(one: LogEffect) -> str:
    verdict = f", {one.verdict}" if one.verdict else ""
    ends = f"{text_of(one.before)} → {text_of(one.after)}"
    return f"{one.metric} {ends} ({effect_change(one)}{verdict})"


def _entry(record: Record) -> Report:
    return {
        "id": record.id, "at": when(record), "title": record.title, "by": record.operator,
        "problems": list(record.problems),
    }  # fmt: skip


def _open_items(records: Sequence[Record], now: float) -> list[Report]:
    """Of the newest sign-off of each checklist, what had not passed."""
    newest: dict[str, Record] = {}
    for record in records:
        if record.how.get("command") == "checklist":
            newest[record.why] = record
    return [
        {"list": name, "item": problem, "at": at, "by": record.operator}
        for name, record in newest.items()
        if (at := when(record)) is not None and now - at <= CHECKLISTS_S
        for problem in record.problems
    ]


def _forecast(report: Mapping[str, Any] | None) -> Report | None:
    if report is None:
        return None
    return {
        "start": report["start"],
        "seconds": report["seconds"],
        "sentences": list(report["sentences"]),
        "warnings": list(report["warnings"]),
    }


def _remedies(
    watch: Mapping[str, Any], happened: Sequence[Incident], recent: Sequence[Record]
) -> list[Report]:
    """What the rules of one's own say to do, and how what was changed is undone."""
    told = [(rule["words"], rule["text"]) for rule in watch.get("rules", ()) if rule["text"]]
    told += [
        (one.words, one.text)
        for one in happened
        if one.text != one.words and not comes_with_objectives(one.rule)
    ]
    if any(comes_with_objectives(one.rule) for one in happened):
        told.append(("an objective is missed, or its budget goes too fast", SEARCH))
    told += [(f"“{r.title}” does harm", r.rollback) for r in recent if r.what and r.rollback]
    told.append(("an engine does not answer, or its numbers are old", LOOK))
    return [{"if": words, "then": text} for words, text in dict.fromkeys(told)]


def _verdict(report: Report) -> str:
    """The first sentence: what fires, and whether a budget is in trouble."""
    firing = report["firing"]
    named = ", ".join(f"{one['rule']} at {one['target']}" for one in firing)
    nothing = (
        "nothing fires" if report["watched"] else "nobody keeps watch: what fires is not known"
    )
    parts = [f"{len(firing)} firing: {named}" if firing else nothing]
    gone = [b for b in report["budgets"] if b["gone_s"] == 0]
    short = [b for b in report["budgets"] if b["lasts"] is False and b["gone_s"] != 0]
    for words, several in (("budget gone", gone), ("budget that will not last", short)):
        if several:
            named = ", ".join(f"{b['objective']} of {b['engine']}" for b in several)
            parts.append(f"{words}: {named}")
    if report["budgets"] and not (gone or short):
        parts.append("no budget is in trouble")
    if report["open_items"]:
        parts.append(f"open checklist items: {len(report['open_items'])}")
    return "; ".join(parts)
