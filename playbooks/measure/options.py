"""The option matrix: what could be done, what it gains, what it risks, and how to go back.

A gain is called measured only where a comparison on this machine has it; every other figure
carries its source, and what would measure it here or why nothing can. Best first when sorted by
gain: measured before reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli

from engine.errors import ConfigError
from playbooks.reports import results

SCHEMA = 1
FILE = Path(__file__).parent / "options.toml"
LEVELS = {1: "low", 2: "middle", 3: "high"}
SORTS = ("id", "gain", "risk", "cost")


def option_matrix(
    sort: str = "id", compared: Iterable[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The report. `compared` are results of compare, newest first; those kept here by default."""
    if sort not in SORTS:
        raise ConfigError(f"--sort: {sort!r} is not one of {', '.join(SORTS)}")
    reports = list(results.saved("compare") if compared is None else compared)
    rows = [_row(entry, reports) for entry in tomli.loads(FILE.read_text("utf-8"))["option"]]
    keys = {
        "id": lambda row: 0,
        "gain": lambda row: (row["measured"] is None, -_size(row)),
        "risk": lambda row: row["risk_level"],
        "cost": lambda row: row["cost_level"],
    }
    return {
        "schema": SCHEMA,
        "kind": "options",
        "sort": sort,
        "options": sorted(rows, key=keys[sort]),
    }


def _size(row: dict[str, Any]) -> float:
    """How much better, as a factor: 2 for double the throughput or half the latency."""
    found = row["measured"]
    if found is None or found["verdict"] in ("inconclusive", "no difference"):
        return 1.0
    change, better = found["change"], found["better"]
    return float(1 + change if better == "higher" else 1 / max(1 + change, 1e-9))


def _row(entry: dict[str, Any], reports: list[dict[str, Any]]) -> dict[str, Any]:
    measured = find_measured(entry.get("measured"), reports)
    return {
        "id": entry["id"],
        "title": entry["title"],
        "setting": entry["setting"],
        "available": entry["available"],
        "gain": entry["gain"],
        "measured": measured,
        "unmeasured": None if measured else entry.get("how") or entry["unmeasured"],
        "elsewhere": entry["elsewhere"],
        "source": entry["source"],
        "claim": "measured here" if measured else "reported elsewhere",
        "risk": LEVELS[entry["risk"]],
        "risk_level": entry["risk"],
        "risk_note": entry["risk_note"],
        "cost": LEVELS[entry["cost"]],
        "cost_level": entry["cost"],
        "cost_note": entry["cost_note"],
        "rollback": entry["rollback"],
    }


def find_measured(
    wanted: dict[str, Any] | None, reports: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The newest effect of switching the option on, or None."""
    if wanted is None:
        return None
    setting, value = next((k, v) for k, v in wanted.items() if k != "metric")
    for report in reports:
        arms = {arm["name"]: arm["config"] for arm in report["arms"]}
        for row in report["effects"]:
            before, after = arms[row["from"]].get(setting), arms[row["to"]].get(setting)
            if row["metric"] == wanted["metric"] and row["change"] is not None:
                if after == value != before:
                    return _measured(row, report)
                if before == value != after:  # it was switched off instead
                    return _measured(_turned(row), report)
    return None


def _measured(row: dict[str, Any], report: dict[str, Any]) -> dict[str, Any]:
    keys = ("metric", "title", "better", "change", "low", "high", "verdict", "from", "to")
    where = {
        "experiment": report["name"], "model": report["model"], "quick": report["quick"],
        "repeats": report["repeats"],
    }  # fmt: skip
    return {key: row[key] for key in keys} | where


def _turned(row: dict[str, Any]) -> dict[str, Any]:
    """The effect the other way round."""
    back = {"better": "worse", "worse": "better"}
    return row | {
        "change": 1 / (1 + row["change"]) - 1,
        "low": 1 / (1 + row["high"]) - 1,
        "high": 1 / (1 + row["low"]) - 1,
        "verdict": back.get(row["verdict"], row["verdict"]),
        "from": row["to"],
        "to": row["from"],
    }
