"""Two records side by side: settings, results, and whether they can be compared at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playbooks.optlog.record import Record
from playbooks.reports.text import json_values

SCHEMA = 1
LOOK_AT = ("machine", "cores", "device", "model", "torch", "git", "config_hash")
"""Facts of the environment whose difference makes two results hard to compare."""


def diff(a: Record, b: Record) -> dict[str, Any]:
    """What differs from record `a` to record `b`; equal entries are left out."""
    environment = _rows(a.environment, b.environment)
    how = _rows(a.how, b.how)
    return {
        "schema": SCHEMA,
        "kind": "log_diff",
        "a": _side(a),
        "b": _side(b),
        "what": _rows(_changes(a), _changes(b)),
        "how": how,
        "effect": _effects(a, b),
        "environment": environment,
        "notes": _notes(environment, how),
    }


def _side(record: Record) -> dict[str, Any]:
    names = ("id", "time", "title", "decision")
    return {name: getattr(record, name) for name in names}


def _changes(record: Record) -> dict[str, Any]:
    return {change.key: {"before": change.before, "after": change.after} for change in record.what}


def _rows(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    left, right = _flat(a), _flat(b)
    keys = dict.fromkeys([*left, *right])
    return [
        {"key": key, "a": left.get(key), "b": right.get(key)}
        for key in keys
        if left.get(key) != right.get(key)
    ]


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{name}.")
        else:
            found[name] = json_values(value)
    return found


def _effects(a: Record, b: Record) -> list[dict[str, Any]]:
    """The values after the change, of every metric that either has."""
    left, right = ({e.metric: e for e in record.effect} for record in (a, b))
    rows = []
    for metric in dict.fromkeys([*left, *right]):
        one, two = left.get(metric), right.get(metric)
        before, after = (e.after if e else None for e in (one, two))
        rows.append({
            "metric": metric,
            "a": before,
            "b": after,
            "change": relative(before, after),
            "verdict_a": one.verdict if one else None,
            "verdict_b": two.verdict if two else None,
        })  # fmt: skip
    return rows


def relative(before: Any, after: Any) -> float | None:
    """after ÷ before − 1, where both are numbers and the first is not zero."""
    for value in (before, after):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
    return after / before - 1 if before else None


def _notes(environment: list[dict[str, Any]], how: list[dict[str, Any]]) -> list[str]:
    differ = [row["key"] for row in environment if row["key"] in LOOK_AT]
    work = [row["key"] for row in how if row["key"] in ("lengths", "seed", "scale", "repeats")]
    notes = []
    if differ:
        notes.append(f"measured in different surroundings: {', '.join(differ)}")
    if work:
        notes.append(f"measured under different work: {', '.join(work)}")
    return notes
