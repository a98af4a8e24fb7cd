"""The record that a playbook or a self-test leaves in the optimization log."""

from __future__ import annotations

from typing import Any

from engine.config import EngineConfig
from playbooks.optlog import LogEffect, Record
from playbooks.optlog.provenance import provenance_of


def record_of(report: dict[str, Any], config: EngineConfig | None) -> Record:
    """A check changes nothing: its gates are effects without a before."""
    fault = f", with the fault {report['fault']} put in" if report["fault"] else ""
    gates = [(row["id"], gate) for row in report["steps"] for gate in row["gates"]]
    return Record(
        title=f"Check {report['name']}: {report['verdict']}{fault}",
        why=report["title"],
        how={
            "playbook": report["name"],
            "target": report["target"].get("url", "embedded"),
            "steps": {row["id"]: row["parameters"] for row in report["steps"]},
            "seconds": report["seconds"],
            "state": report["state"],
        },
        effect=tuple(
            LogEffect(f"{step}.{gate['metric']}", after=gate["value"], verdict=gate["verdict"])
            for step, gate in gates
        ),
        problems=tuple(_problems(report)),
        environment=provenance_of(config),
        artifacts=tuple(report.get("files", ())),
    )


def _problems(report: dict[str, Any]) -> list[str]:
    found = [report["problem"]] if report["problem"] else []
    for finding in report["findings"]:
        if finding["cause"] != "healthy":
            found.append(f"{finding['cause']}: {finding['evidence'][0]}; {finding['remedy']}")
    for row in report["steps"]:
        if row["verdict"] not in ("pass", "skipped") and not row["gates"]:
            found.append(f"{row['id']}: {row['verdict']}: {row['reason']}")
        found += [f"{row['id']}: {gate['evidence']}" for gate in row["gates"]
                  if gate["verdict"] not in ("pass", "not told")]  # fmt: skip
    return found


def selftest_record(report: dict[str, Any], config: EngineConfig) -> Record:
    """Of `evewatch playbook selftest`."""
    return Record(
        title=f"Self-test of the diagnosis: {report['verdict']}",
        why="a diagnosis is worth what it finds when something is known to be wrong",
        how={"runs": len(report["rows"]), "load": report["load"], "seconds": report["seconds"]},
        effect=tuple(
            LogEffect(f"{row['fault'] or 'healthy'} found first", after=row["first"],
                   verdict="pass" if row["found"] else "fail")
            for row in report["rows"]
        ),
        problems=tuple(f"{row['fault'] or 'healthy'}: the first finding was {row['first']}"
                       for row in report["rows"] if not row["found"]),
        environment=provenance_of(config),
    )  # fmt: skip


DECISIONS = {"pass": "adopt", "warn": "adopt"}
"""What a signed-off list means for what it is about; all else is on hold."""


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
        problems=tuple(map(_still_open, still_open)),
        decision=DECISIONS.get(report["verdict"], "hold"),
        operator=report["signed_off_by"],
        environment=provenance_of(),
        artifacts=artifacts,
    )  # fmt: skip


def _still_open(row: dict[str, Any]) -> str:
    wish = "it must be so" if row["severity"] == "must" else "it should be so"
    return f"{row['text']}: {row['verdict']}, though {wish}; {row['evidence']}"
