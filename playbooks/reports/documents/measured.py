"""Documents of what was measured: a profile, a sweep, a closed batch, a load, a calibration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from playbooks.reports.document import (
    Bars,
    Chart,
    Column,
    Document,
    Facts,
    Line,
    Table,
    change,
    duration,
    percent,
    plain,
    rate,
    whole,
)
from playbooks.reports.documents.parts import (
    PERCENTILES,
    counted,
    doubts,
    host_line,
    latency_table,
    surroundings,
    verdict_of,
)


def profile_document(report: dict[str, Any]) -> Document:
    work, steps = report["work"], report["steps"]
    stages = Table(
        "Request time by stage",
        [Column("stage"), Column("share", percent, True),
         *(Column(p, duration, True) for p in PERCENTILES)],
        [[row["stage"], row["share"], *(row["ms"][p] for p in PERCENTILES)]
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
        [surroundings(report), f"{lead}, seed {work['seed']}", host_line(report)],
        tables=[stages, parts],
        bars=[
            Bars("request time", [(row["stage"], row["share"]) for row in report["stages"]]),
            Bars("engine time", [(row["label"], row["share"]) for row in steps["parts"]]),
        ],
        sentences=report["hot_spots"],
        warnings=[*report["warnings"], *doubts(report)],
        rows=report["stages"],
    )


def sweep_document(report: dict[str, Any]) -> Document:
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
        [surroundings(report), f"lengths {work['lengths']}, {work['repeats']} repeats, "
                        f"seed {work['seed']}", host_line(report)],
        tables=[table],
        charts=charts,
        warnings=doubts(report),
        sentences=[verdict + "; ".join(report["reasons"])],
        rows=points,
    )  # fmt: skip


def bench_document(report: dict[str, Any]) -> Document:
    machine, work = report["machine"], report["work"]
    return Document(
        "A closed batch",
        [
            f"{report['model']} on {machine['device']} ({machine['kernels']} kernels, "
            f"{machine['cores']} cores), {work['requests']} requests, "
            f"{work['prompt_tokens'] or '?'} prompt and {work['output_tokens']} output tokens, "
            f"{report['wall_s']:.1f} s",
            host_line(report),
        ],
        tables=[latency_table(report["latency"])],
        warnings=doubts(report),
        facts=[Facts("", list(_bench_facts(report)))],
        rows=[report],
    )


def _bench_facts(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    kv, machine = report["kv"], report["machine"]
    yield "throughput", _throughput(report)
    yield (
        "KV cache",
        (
            f"{kv['format']}: {kv['bytes_per_token']:,.0f} bytes/token, "
            f"{percent(kv['sealed_ratio'])} of fp16 sealed, {percent(kv['effective_ratio'])} with "
            f"open pages; peak {kv['peak_pages']} of {kv['pages_total']} pages"
        ),
    )
    yield "roofline", _of_limit(report, "roofline_fraction", "gemm", "in float32")
    if report["integer_fraction"] is not None:
        yield "", _of_limit(report, "integer_fraction", "integer", "in integers")
    yield "work", f"{report['gemm_gflop']:,.0f} GFLOP of products, taken in {machine['compute']}"
    shares = report["kernels"]
    yield "time", (
        "–  (these kernels keep no account)" if shares is None
        else ", ".join(f"{part.replace('_', ' ')} {share:.0%}" for part, share in shares.items())
    )  # fmt: skip
    yield "memory", f"peak RSS {report['memory']['peak_rss_mib']:.0f} MiB"
    if "console" in report:
        cost, keys = report["console"], report["console"]["key_ms"]
        yield (
            "console",
            (
                f"takes {percent(report['console_overhead'])} of the CPU time "
                f"({percent(cost['lowest'])} to {percent(cost['highest'])} in "
                f"{len(cost['with_tok_s'])} pairs of runs; a token took "
                f"{change(cost['cpu_per_token'])} CPU time); a key is answered in "
                f"{duration(keys['p50'])}, p90 {duration(keys['p90'])}"
            ),
        )
    if "crosstalk" in report:
        cross = report["crosstalk"]
        yield "crosstalk", ", ".join(f"{key.replace('_', ' ')} {plain(value)}"
                                     for key, value in cross.items()
                                     if isinstance(value, int | float | str))  # fmt: skip


def _of_limit(report: dict[str, Any], fraction: str, name: str, how: str) -> str:
    machine = report["machine"]
    return (
        f"{percent(report[fraction])} of this machine's GEMM limit {how} "
        f"({machine[f'{name}_gflops']:.0f} GFLOP/s by {machine[f'{name}_by']})"
    )


def _throughput(report: dict[str, Any]) -> str:
    t = report["throughput"]
    return (
        f"{t['output_tok_s']:.1f} output tok/s, {t['total_tok_s']:.1f} total tok/s, "
        f"{t['requests_s']:.2f} requests/s"
    )


def load_document(report: dict[str, Any]) -> Document:
    target, work, n = report["target"], report["load"], report["requests"]
    model = f", {target['model']}" if target.get("model") else ""
    broken = f", {n['interrupted']} interrupted" if n["interrupted"] else ""
    latency = latency_table(report["latency"] | {"send delay": report["send_delay_ms"]})
    return Document(
        f"Load: {report['verdict']}",
        [
            f"{target.get('url') or target['kind']}{model}: {work['arrivals']}, lengths "
            f"{work['lengths']}, seed {work['seed']}",
            f"{n['sent']} sent, {n['completed']} completed, {n['failed']} failed{broken}; "
            f"{n['measured']} measured over {_window(report)}",
            *([host_line(report)] if report.get("host") else []),
        ],
        tables=[latency],
        facts=[Facts("", [*_load_facts(report), *verdict_of(report)])],
        warnings=[*report["warnings"], *doubts(report)],
        rows=[{"latency": name, **block} for name, block in report["latency"].items()],
    )


def _window(report: dict[str, Any]) -> str:
    window = report["window"]
    span = f"{window['end_s'] - window['begin_s']:.1f} s"
    return f"{span} after {window['begin_s']:.1f} s of warm-up" if window["steady"] else span


def _load_facts(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    tokens, offered = report["tokens"], report["offered"]["requests_s"]
    yield "throughput", _throughput(report) + (f" of {offered:.2f} offered" if offered else "")
    flight = report["in_flight"]
    if flight["max"] is not None:
        yield "in flight", f"{flight['mean']:.1f} on average, {flight['max']} at most"
    yield (
        "tokens",
        (
            f"{tokens['prompt']:,} prompt, {tokens['output']:,} output; longest context "
            f"{tokens['longest_context'] or '–'}"
        ),
    )
    if report["goodput"]:
        good = report["goodput"]
        limits = ", ".join(f"{k.removesuffix('_ms')} {v:g} ms" for k, v in good["slo"].items())
        yield (
            "goodput",
            (f"{good['requests_s']:.2f} requests/s, {percent(good['share'])} within {limits}"),
        )
    yield "finish", counted(report["finish_reasons"])
    for kind, count in report["errors"].items():
        yield "failed", f"{count} × {kind}: {report['error_examples'][kind]}"
    for trace in report["traces"]:
        yield "trace", f"{trace['file']} ({trace['format']}): {_trace(trace)}"


def _trace(trace: dict[str, Any]) -> str:
    names = ("rows", "used", "malformed", "failed", "out_of_order", "same_time")
    text = counted({name.replace("_", " "): trace[name] for name in names})
    return f"{text}; first problem: {trace['first_problem']}" if trace["first_problem"] else text


LAYERS_SHOWN = 5


def calibrate_document(report: dict[str, Any]) -> Document:
    numbers = [Column(name, whole, True) for name in ("layer", "KV head", "channel")]
    table = Table(
        "Outlier channels",
        [*numbers, Column("× median", rate, True), Column("largest |K|", plain, True)],
        [[o["layer"], o["head"], o["channel"], o["ratio"], o["k_max"]] for o in report["outliers"]],
    )
    far = sorted(report["layers"], key=lambda row: -row["largest_ratio"])[:LAYERS_SHOWN]
    return Document(
        "Calibration",
        [
            f"{report['model']}: {report['tokens']:,} tokens, the longest context "
            f"{report['longest_context']:,}; {report['channels_beyond']} of "
            f"{report['channels']:,} K channels beyond {report['threshold']:g} × their head's "
            "median"
        ],
        tables=[table] if report["outliers"] else [],
        facts=[
            Facts("", [
                ("farthest out by layer",
                 ", ".join(f"layer {row['layer']} {row['largest_ratio']:.1f} ×" for row in far)),
                ("written to", report["file"]),
            ])
        ],
        rows=report["outliers"],
    )  # fmt: skip
