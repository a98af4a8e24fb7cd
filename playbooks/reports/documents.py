"""From a report to its document: one function for each kind of report."""

from __future__ import annotations

from typing import Any

from playbooks.canary.page import canary_document
from playbooks.measure.stats import P99_LEAST
from playbooks.reports.checkdoc import checklist_document
from playbooks.reports.checkupdoc import check_document, selftest_document, soak_document
from playbooks.reports.document import (
    Bars,
    Chart,
    Column,
    Document,
    Line,
    Table,
    change,
    duration,
    flat,
    percent,
    rate,
    size,
    whole,
)


def document(report: dict[str, Any]) -> Document:
    """Of any report; those of unknown kind become a list of their numbers."""
    makers = {
        "profile": _profile, "sweep": _sweep, "compare": _compare, "options": _options,
        "canary": canary_document, "checklist": checklist_document,
        "check": check_document, "soak": soak_document, "selftest": selftest_document,
    }  # fmt: skip
    return makers.get(report.get("kind", ""), _plain)(report)


def _plain(report: dict[str, Any]) -> Document:
    rows = flat(report)
    table = Table("Result", [Column("field"), Column("value", numeric=True)], rows)
    return Document(f"{report.get('kind', 'report')}", tables=[table], rows=[report])


def _head(report: dict[str, Any]) -> str:
    env = report["environment"]
    return (
        f"{report['model']}, {env['device']} device, {env['threads']} threads, torch "
        f"{env['torch']}, {report['seconds']:.0f} s"
    )


# --- profile -----------------------------------------------------------------------------


def _profile(report: dict[str, Any]) -> Document:
    work, steps = report["work"], report["steps"]
    stages = Table(
        "Request time by stage",
        [Column("stage"), Column("share", percent, True),
         *(Column(p, duration, True) for p in ("p50", "p90", "p99", "mean"))],
        [[row["stage"], row["share"], *(row["ms"][p] for p in ("p50", "p90", "p99", "mean"))]
         for row in report["stages"]],
    )  # fmt: skip
    parts = Table(
        f"Engine time by part of a step ({steps['count']} steps, mean {steps['mean_ms']:.1f} ms)",
        [Column("part"), Column("share", percent, True), Column("total", duration, True)],
        [[row["label"], row["share"], row["ms"]] for row in steps["parts"]],
    )
    lead = f"{work['arrivals']}, lengths {work['lengths']}, {work['requests']} requests"
    return Document(
        "Where the time goes",
        [_head(report), f"{lead}, seed {work['seed']}"],
        tables=[stages, parts],
        bars=[
            Bars("request time", [(row["stage"], row["share"]) for row in report["stages"]]),
            Bars("engine time", [(row["label"], row["share"]) for row in steps["parts"]]),
        ],
        sentences=report["hot_spots"],
        warnings=report["warnings"],
        rows=report["stages"],
    )


# --- sweep -------------------------------------------------------------------------------


def _sweep(report: dict[str, Any]) -> Document:
    points, work = report["points"], report["work"]
    tail = work["p99_of"]
    label = f"{tail.removesuffix('_ms').upper()} p99"
    table = Table(
        "Batch sizes",
        [Column("batch", whole, True), Column("tok/s", rate, True), Column("low", rate, True),
         Column("high", rate, True), Column("TTFT p50", duration, True),
         Column("TPOT p50", duration, True), Column(label, duration, True),
         Column("Little", percent, True), Column("bound by"), Column("counts")],
        [[p["batch"], p["output_tok_s"], p["low"], p["high"], p["latency"]["ttft_ms"]["p50"],
          p["latency"]["tpot_ms"]["p50"], p["latency"][tail]["p99"], p["little_error"],
          p["bound_by"], p["doubts"] or "yes"] for p in points],
    )  # fmt: skip
    marks = [(name.replace("_", " "), report[name]) for name in ("knee", "recommended_cap")]
    shown = [(name, at) for name, at in marks if at is not None]
    x = [p["batch"] for p in points]
    charts = [
        Chart("output tokens per second", "batch", x,
              [Line("tok/s", [p["output_tok_s"] for p in points],
                    [p["low"] for p in points], [p["high"] for p in points])], rate, shown),
        Chart(label, "batch", x,
              [Line(label, [p["latency"][tail]["p99"] for p in points])], duration, shown),
    ]  # fmt: skip
    verdict = (
        "no knee: " if report["abstained"]
        else f"knee {report['knee']}, recommended cap {report['recommended_cap'] or '–'}: "
    )  # fmt: skip
    return Document(
        "Throughput and tail latency over the batch size",
        [_head(report), f"lengths {work['lengths']}, {work['repeats']} repeats, "
                        f"seed {work['seed']}"],
        tables=[table],
        charts=charts,
        sentences=[verdict + "; ".join(report["reasons"])],
        rows=points,
    )  # fmt: skip


# --- compare -----------------------------------------------------------------------------


def _compare(report: dict[str, Any]) -> Document:
    work = report["work"]
    rate_text = (
        f"; {work['rate_requests']} requests at {work['rate_requests_s']:.2f}/s for latency"
        if work["rate_requests"] is not None
        else ""
    )
    lead = [
        _head(report),
        f"{work['lengths']}; {work['batch_requests']} requests at once for throughput{rate_text}; "
        f"{report['repeats']} repeats, seed {report['seed']}",
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
        warnings=_too_few(report),
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
        (f"{name.upper()} {p}", f"{name}_ms", p)
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


# --- options -----------------------------------------------------------------------------


def _options(report: dict[str, Any]) -> Document:
    rows = report["options"]
    columns = [Column(n) for n in ("option", "figure", "claim", "risk", "cost")]
    table = Table(
        "Options",
        columns,
        [[_title(r), figure(r), r["claim"], r["risk"], r["cost"]] for r in rows],
    )
    names = ("id", "title", "setting", "available", "gain", "claim", "elsewhere", "source",
             "risk", "risk_note", "cost", "cost_note", "rollback")  # fmt: skip
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
    source = "" if row["measured"] else f" Figure: {row['source']}."
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
