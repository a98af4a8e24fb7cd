"""Reports of commands as tables for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table


def bench_table(report: dict[str, Any]) -> None:
    console = Console()
    t, kv, machine, work = (report[k] for k in ("throughput", "kv", "machine", "work"))
    console.print(
        f"{report['model']} on {machine['device']} ({machine['kernels']} kernels, "
        f"{machine['cores']} cores), {work['requests']} requests, "
        f"{work['prompt_tokens'] or '?'} prompt and {work['output_tokens']} output tokens, "
        f"{report['wall_s']:.1f} s",
        highlight=False,
    )
    table = Table("latency", "p50", "p90", "p99", "mean", "n", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, block in report["latency"].items():
        cells = [milliseconds(block[k]) for k in ("p50", "p90", "p99", "mean")]
        table.add_row(name.removesuffix("_ms").upper(), *cells, str(block["n"]))
    console.print(table)
    console.print(
        f"throughput   {t['output_tok_s']:.1f} output tok/s, {t['total_tok_s']:.1f} total tok/s, "
        f"{t['requests_s']:.2f} requests/s",
        f"KV cache     {kv['format']}: {kv['bytes_per_token']:,.0f} bytes/token, "
        f"{kv['sealed_ratio']:.1%} of fp16 sealed, {ratio(kv['effective_ratio'])} with open pages; "
        f"peak {kv['peak_pages']} of {kv['pages_total']} pages",
        f"roofline     {report['roofline_fraction']:.1%} of this machine's GEMM limit "
        f"({machine['gemm_gflops']:.0f} GFLOP/s by {machine['gemm_by']}; "
        f"{report['gemm_gflop']:,.0f} GFLOP of work)",
        f"time         {_kernel_shares(report['kernels'])}",
        f"memory       peak RSS {report['memory']['peak_rss_mib']:.0f} MiB",
        sep="\n",
        highlight=False,
    )
    if "console" in report:
        console.print(_console_line(report), highlight=False)


def _console_line(report: dict[str, Any]) -> str:
    cost = report["console"]
    keys = cost["key_ms"]
    return (
        f"console      costs {report['console_overhead']:.1%} of the output tokens "
        f"({cost['lowest']:.1%} to {cost['highest']:.1%} in {len(cost['with_tok_s'])} pairs of "
        f"runs); a key is answered in {milliseconds(keys['p50'])}, p90 {milliseconds(keys['p90'])}"
    )


def _kernel_shares(shares: dict[str, float] | None) -> str:
    if shares is None:
        return "–  (these kernels keep no account)"
    return ", ".join(f"{part.replace('_', ' ')} {share:.0%}" for part, share in shares.items())


def ledger_table(report: dict[str, Any]) -> None:
    table = Table("held by requests", "before", "during", "after", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, count in report["before"].items():
        table.add_row(name, str(count), str(report["during"][name]), str(report["after"][name]))
    console = Console()
    console.print(table)
    left = ", ".join(f"{n} {name}" for name, n in report["left"].items())
    console.print(f"left behind: {left or 'nothing'}", highlight=False)


def model_table(report: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in report.items():
        if key not in ("schema", "kind"):
            table.add_row(key.replace("_", " "), _plain(value))
    Console().print(table, highlight=False)


def model_list_table(report: dict[str, Any]) -> None:
    console = Console()
    for row in report["models"]:
        console.print(f"{row['name']}  {row['file']}  {row['bytes'] / 1e6:.0f} MB", highlight=False)
    if report["note"]:
        console.print(report["note"], highlight=False)


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e3:.2f} s" if value >= 1000 else f"{value:.0f} ms"


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in value.items()
        )
    if isinstance(value, list | tuple | frozenset):
        return ", ".join(map(str, value))
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
