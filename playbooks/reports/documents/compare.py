"""A comparison as a document: arms, effects, goals."""

from __future__ import annotations

from typing import Any

from playbooks.reports.document import (
    Column,
    Document,
    Table,
    change,
    duration,
    percent,
    rate,
    size,
    whole,
)
from playbooks.reports.documents.parts import doubts, host_line, surroundings
from playbooks.statistics.intervals import P99_LEAST


def compare_document(report: dict[str, Any]) -> Document:
    work = report["work"]
    rate_text = (
        f"; {work['rate_requests']} requests at {work['rate_requests_s']:.2f}/s for latency"
        if work["rate_requests"] is not None
        else ""
    )
    lead = [
        surroundings(report),
        f"{work['lengths']}; {work['batch_requests']} requests at once for throughput{rate_text}; "
        f"{report['repeats']} repeats, seed {report['seed']}",
        host_line(report),
    ]
    tables = [_arms(report), *_effect_tables(report)]
    if report["goals"]:
        tables.append(_goals(report))
    return Document(
        report["title"],
        lead,
        report["regime"].strip().split("\n\n") if report["regime"] else [],
        tables,
        _all_columns(report),
        sentences=report["findings"],
        warnings=[*_too_few(report), *doubts(report)],
        rows=report["arms"],
    )


def _too_few(report: dict[str, Any]) -> list[str]:
    n = report["arms"][0]["latency"]["e2e_ms"]["n"]
    return [f"{n} requests an arm: n too small for a P99"] if n < P99_LEAST else []


def _arms(report: dict[str, Any]) -> Table:
    columns = [
        Column("arm"), Column("tok/s", rate, True), Column("E2E p50", duration, True),
        Column("E2E p99", duration, True), Column("KV B/token", whole, True),
        Column("memory", size, True), Column("quality"), Column("bound by"),
    ]  # fmt: skip
    rows = [
        [
            arm["name"],
            arm["throughput"]["output_tok_s"],
            arm["latency"]["e2e_ms"]["p50"],
            arm["latency"]["e2e_ms"]["p99"],
            arm["kv"]["bytes_per_token"],
            arm["memory"]["weights_and_kv_bytes"],
            arm["quality"] or "–",
            arm["bound_by"],
        ]
        for arm in report["arms"]
    ]
    return Table("Arms", columns, rows)


def _all_columns(report: dict[str, Any]) -> Table:
    """An arm a row, with everything that has a number."""
    latencies = [
        (f"{name.upper()} mean" if p == "mean" else f"{name.upper()} {p}", f"{name}_ms", p)
        for name in ("e2e", "ttft", "tpot", "itl", "queue")
        for p in ("p50", "p90", "p99", "mean")
    ]
    columns = [
        Column("arm"), Column("changes"), Column("output tok/s", rate, True),
        Column("requests/s", rate, True), *(Column(n, duration, True) for n, *_ in latencies),
        Column("n", whole, True), Column("KV B/token", whole, True),
        Column("KV of fp16", percent, True), Column("held B/token", whole, True),
        Column("KV peak", size, True), Column("KV pool", size, True),
        Column("weights and KV", size, True), Column("preemptions", whole, True),
        Column("quality"), Column("bound by"),
    ]  # fmt: skip
    rows = [
        [
            arm["name"],
            ", ".join(f"{k}={v}" for k, v in arm["changes"].items()),
            arm["throughput"]["output_tok_s"],
            arm["throughput"]["requests_s"],
            *(arm["latency"][metric][p] for _, metric, p in latencies),
            arm["latency"]["e2e_ms"]["n"],
            arm["kv"]["bytes_per_token"],
            arm["kv"]["bytes_per_token"] / arm["kv"]["fp16_bytes_per_token"],
            arm["kv"]["held_bytes_per_token"],
            arm["kv"]["peak_bytes"],
            arm["kv"]["pool_bytes"],
            arm["memory"]["weights_and_kv_bytes"],
            arm["preemptions"],
            arm["quality"],
            arm["bound_by"],
        ]
        for arm in report["arms"]
    ]
    return Table("Arms in full", columns, rows)


def _effect_tables(report: dict[str, Any]) -> list[Table]:
    """One for each pair of arms; the first against the last comes at the end."""
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in (*report["effects"], *report["overall"]):
        if row["change"] is not None:
            pairs.setdefault((row["to"], row["from"]), []).append(row)
    columns = [
        Column("metric"), Column("change", change, True), Column("low", change, True),
        Column("high", change, True), Column("n", whole, True), Column("verdict"),
    ]  # fmt: skip
    return [
        Table(
            f"{after}, against {before}",
            columns,
            [[r["title"], r["change"], r["low"], r["high"], r["n"], r["verdict"]] for r in rows],
        )
        for (after, before), rows in pairs.items()
    ]


def _goals(report: dict[str, Any]) -> Table:
    columns = [Column("goal"), Column("ratio", numeric=True), Column("verdict"), Column("why")]
    rows = [
        [
            f"{goal['metric']} {'≥' if goal['at_least'] is not None else '≤'} "
            f"{goal['at_least'] if goal['at_least'] is not None else goal['at_most']:g} ×",
            goal["ratio"],
            goal["verdict"],
            goal["why"],
        ]
        for goal in report["goals"]
    ]
    return Table("Goals", columns, rows)
