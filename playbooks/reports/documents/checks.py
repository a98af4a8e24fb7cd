"""Documents of check-ups: a playbook's report, a soak, a self-test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from playbooks.diagnosis.causes import CAUSES
from playbooks.reports.document import Column, Document, Table, named, percent, plain, rate, whole
from playbooks.reports.documents.canary import canary_document
from playbooks.reports.documents.checklist import checklist_document
from playbooks.reports.documents.compare import compare_document
from playbooks.reports.documents.forecast import forecast_document
from playbooks.reports.documents.listed import EFFECT
from playbooks.reports.documents.measured import profile_document, sweep_document
from playbooks.reports.documents.parts import doubts, host_line
from playbooks.reports.documents.quality import quality_document

TITLES = {cause.name: cause.title for cause in CAUSES}
SECONDS = Column("seconds", whole, True)


def check_document(report: dict[str, Any]) -> Document:
    target, state = report["target"], report["state"]
    where = target.get("url") or f"embedded engine ({target['config']['kv_format']} KV)"
    seen = " (outside view)" if report["view"] == "outside" else ""
    verdict = report["verdict"] + seen
    started = report["started"].replace("T", " ").replace("Z", " UTC")
    lead = [f"{where}; {started}, {report['seconds']:.0f} s; verdict {verdict}"]
    if report["blind_spots"]:
        lead.append(f"not seen from outside: {'; '.join(report['blind_spots'])}")
    warnings = []
    if report["fault"]:
        warnings.append(f"the fault {report['fault']} was put into the engine on purpose")
    if report["withheld"]:
        warnings.append(f"withheld: {', '.join(report['withheld'])}")
    if state != "done":
        left = f"; not run: {', '.join(report['not_run'])}" if report["not_run"] else ""
        problem = report["problem"] if report["problem"] != state else "not at its end"
        warnings.append(f"{state}: {problem or 'not at its end'}{left}")
    return Document(
        f"{report['title']}: {verdict}",
        lead,
        tables=[_steps(report), *_findings(report), *_gates(report), *_inside(report),
                *_metrics(report)],
        sentences=[_words(finding) for finding in report["findings"]],
        warnings=warnings,
        rows=report["steps"],
    )  # fmt: skip


def _inside(report: dict[str, Any]) -> list[Table]:
    """What steps found: more than their metrics tell."""
    return [
        replace(table, title=f"{row['id']}: {table.title[:1].lower()}{table.title[1:]}")
        for row in report["steps"]
        if row["report"]
        for table in _of_step(row["kind"], row["report"])
        if table.rows
    ]


def _of_step(kind: str, found: dict[str, Any]) -> Sequence[Table]:
    """Reports of the commands' own kinds, and those of steps at a URL."""
    match found.get("kind"):
        case "profile":
            return profile_document(found).tables
        case "sweep":
            return sweep_document(found).tables
        case "canary":
            return canary_document(found).tables[:2]
        case "forecast":
            return forecast_document(found).tables
        case "quality" if "gates" in found:  # a probe has none
            return quality_document(found).tables[:2]
        case "compare":
            return compare_document(found).tables[:1]
        case "checklist":
            return checklist_document(found).tables
        case "soak":
            return soak_document(found).tables
    return [_rungs(found["points"])] if kind == "sweep" and "points" in found else []


def _rungs(points: Sequence[dict[str, Any]]) -> Table:
    columns = [Column("users", whole, True), Column("tok/s", rate, True),
               Column("lost to the machine", percent, True)]  # fmt: skip
    rows = [[point["users"], point["output_tok_s"], point["lost"]] for point in points]
    return Table("Closed loops", columns, rows)


def _steps(report: dict[str, Any]) -> Table:
    columns = [Column("step", named), Column("kind", named), Column("verdict"), SECONDS,
               Column("what")]  # fmt: skip
    rows = [
        [row["id"], row["kind"], row["verdict"], row["seconds"], row["reason"]]
        for row in report["steps"]
    ]
    return Table("Steps", columns, rows)


def _findings(report: dict[str, Any]) -> list[Table]:
    columns = [Column("finding", named), Column("confidence", percent, True), Column("remedy"),
               Column("applies"), Column("refuted by")]  # fmt: skip
    rows = [
        [f["cause"], f["confidence"], f["remedy"], EFFECT.get(f["applies"]), f["refuted_by"]]
        for f in report["findings"]
    ]
    return [Table("Findings", columns, rows)] if rows else []


def _words(finding: dict[str, Any]) -> str:
    """What is wrong, its name, and what shows it."""
    cause, evidence = finding["cause"], "; ".join(finding["evidence"])
    return f"{TITLES[cause]} ({cause}): {evidence}" if cause in TITLES else f"{cause}: {evidence}"


def _gates(report: dict[str, Any]) -> list[Table]:
    columns = [Column("step", named), Column("gate"), Column("value", plain, True),
               Column("verdict")]  # fmt: skip
    rows = [
        [row["id"], f"{gate['metric']} {gate['op']} {gate['limit']:g}", gate["value"],
         gate["verdict"]]
        for row in report["steps"] for gate in row["gates"]
    ]  # fmt: skip
    return [Table("Gates", columns, rows)] if rows else []


def _metrics(report: dict[str, Any]) -> list[Table]:
    columns = [Column("step", named), Column("metric", named), Column("value", plain, True)]
    rows = [
        [row["id"], name, value]
        for row in report["steps"]
        for name, value in row["metrics"].items()
        if isinstance(value, int | float | str)
    ]
    return [Table("Measured", columns, rows)] if rows else []


def soak_document(report: dict[str, Any]) -> Document:
    slopes = Table(
        "Per request served",
        [Column("what"), Column("slope", plain, True), Column("at least", plain, True)],
        [[name.replace("_", " "), s and s["per_request"], s and s["low"]]
         for name, s in report["slopes"].items()],
    )  # fmt: skip
    storms = Table(
        "Storms",
        [Column("storm"), Column("sent", whole, True), Column("left"), Column("pool")],
        [[s["name"], s["sent"], ", ".join(f"{n} {k}" for k, n in s["left"].items()) or "nothing",
          s["pool"] or "whole"] for s in report["storms"]],
    )  # fmt: skip
    grew = [f"{row['what']} grows: {row['per_request']:+.3g} per request ({row['kind']})"
            for row in report["grew"]]  # fmt: skip
    return Document(
        f"Soak: {report['verdict']}",
        [f"{report['model']}, {report['served']} requests served, {report['seconds']:.0f} s",
         host_line(report)],
        warnings=doubts(report),
        tables=[slopes, _held(report["held"]), storms],
        sentences=grew or ["nothing grew, and nothing was left"],
        rows=report["looks"],
    )  # fmt: skip


def _held(held: dict[str, dict[str, int]]) -> Table:
    """The ledger before, during and after a wave of requests."""
    times = ("before", "during", "after")
    return Table(
        "Held by requests",
        [Column("what"), *(Column(time, whole, True) for time in times)],
        [
            [name.replace("_", " "), *(held[time][name] for time in times)]
            for name in held["before"]
        ],
    )


def selftest_document(report: dict[str, Any]) -> Document:
    columns = [Column("fault"), Column("what was done"), Column("first finding", named),
               Column("confidence", percent, True), Column("verdict"), SECONDS]  # fmt: skip
    rows = [
        [row["fault"] or "none", row["what"], row["first"], row["confidence"],
         "pass" if row["found"] else "fail", row["seconds"]]
        for row in report["rows"]
    ]  # fmt: skip
    missed = [f"{row['fault'] or 'healthy'}: expected {row['wanted']}, found {row['first']}: "
              f"{row['evidence']}" for row in report["rows"] if not row["found"]]  # fmt: skip
    return Document(
        f"Self-test of the diagnosis: {report['verdict']}",
        [f"{report['model']}, {len(rows)} runs, {report['seconds']:.0f} s"],
        tables=[Table("Faults and first findings", columns, rows)],
        sentences=missed,
        rows=report["rows"],
    )
