"""A canary's report as a document: what happened in each stage, and why it ended as it did."""

from __future__ import annotations

from typing import Any

from playbooks.canary.plan import percent as share_text
from playbooks.reports.document import Column, Document, Table, duration, percent, plain, whole

OUTCOMES = {
    "promoted": "promoted: all users are on the candidate",
    "rolled_back": "rolled back: all users are on the baseline",
    "undecided": "undecided: all users are on the baseline",
}


def canary_document(report: dict[str, Any]) -> Document:
    load, plan = report["load"], report["plan"]
    changes = ", ".join(
        f"{key} {plain(change['before'])} → {plain(change['after'])}"
        for key, change in report["changes"].items()
    )
    quantile = f"P{plan['tail'] * 100:.0f}"
    return Document(
        f"Canary: {OUTCOMES[report['outcome']]}",
        [
            f"{changes}; {report['environment']['device']} device, {report['seconds']:.0f} s",
            f"{load['arrivals']}, lengths {load['lengths']}, {plan['users']} users, seed "
            f"{load['seed']}; {quantile} {plan['metric']} up to {plan['tail_ratio']:g} of the "
            f"baseline's, {plan['min_samples']} answers a stage and side",
        ],
        tables=[_stages(report), _rules(report), _decisions(report)],
        sentences=_sentences(report),
        warnings=report["warnings"],
        rows=report["decisions"],
    )


def _stages(report: dict[str, Any]) -> Table:
    columns = [
        Column("users"), Column("side"), Column("time", duration, True),
        Column("requests", whole, True), Column("failed", whole, True),
        Column("TTFT p50", duration, True), Column("TPOT p50", duration, True),
        Column("E2E p50", duration, True), Column("E2E p99", duration, True), Column("then"),
    ]  # fmt: skip
    rows: list[list[Any]] = []
    for stage in report["stages"]:
        span = ((stage["ended_s"] or stage["began_s"]) - stage["began_s"]) * 1e3
        for side in ("baseline", "candidate"):
            one = stage[side]
            if not one["requests"]:
                continue
            latency = one["latency"]
            rows.append(
                [share_text(stage["share"]), side, span, one["requests"], one["failed"],
                 latency["ttft_ms"]["p50"], latency["tpot_ms"]["p50"], latency["e2e_ms"]["p50"],
                 latency["e2e_ms"]["p99"], stage["action"].replace("_", " ")]
            )  # fmt: skip
    return Table("Stages", columns, rows)


def _rules(report: dict[str, Any]) -> Table:
    rows = [
        [share_text(stage["share"]), one["rule"], one["call"].replace("_", " "), one["why"]]
        for stage in report["stages"]
        for one in stage["rulings"]
    ]
    names = ("users", "rule", "call", "why")
    return Table("Rules at each stage's last look", [Column(name) for name in names], rows)


def _decisions(report: dict[str, Any]) -> Table:
    columns = [Column("at", duration, True), Column("decision"), Column("why")]
    rows = [[d["at_s"] * 1e3, d["title"], d["why"]] for d in report["decisions"]]
    return Table("Decisions", columns, rows)


def _sentences(report: dict[str, Any]) -> list[str]:
    found, back, quality = [], report["rollback"], report["quality"]
    if report["why"]:
        found.append(report["why"])
    if back is not None:
        found.append(
            f"After the decision {back['routed_after']} requests went to the candidate, the last "
            f"after {duration(back['last_request_ms'])}; of {back['in_flight']} open ones "
            f"{back['finished']} ended there and {back['retried']} were asked again of the "
            f"baseline; it was idle after {duration(back['idle_ms'])}, and holds "
            f"{plain(back['left'])} resources"
        )
    if quality is not None:
        shown = [f"{g['title']}: {_value(g)}" for g in quality["gates"] if g["value"] is not None]
        note = f" ({quality['note']})" if quality["note"] else ""
        found.append(f"Quality before any traffic: {quality['verdict']}{note}: {'; '.join(shown)}")
        suspects = [f"layer {s['layer']} head {s['head']} channel {s['channel']}"
                    for s in quality["suspects"][:4]]  # fmt: skip
        if suspects:
            found.append(f"Suspect K channels: {'; '.join(suspects)}")
    return found


def _value(gate: dict[str, Any]) -> str:
    return percent(gate["value"]) if gate["percent"] else f"{gate['value']:.3g}"
