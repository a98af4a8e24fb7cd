"""What several documents have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playbooks.reports.document import Column, Table, duration, percent, whole

PERCENTILES = ("p50", "p90", "p99", "mean")


def surroundings(report: dict[str, Any]) -> str:
    env = report["environment"]
    return (
        f"{report['model']}, {env['device']} device, {env['threads']} threads, torch "
        f"{env['torch']}, {report['seconds']:.0f} s"
    )


def host_line(report: Mapping[str, Any]) -> str:
    """What the machine kept from what was measured."""
    host = report.get("host") or {}  # reports of before have none
    parts = (("others", "others_share"), ("steal", "steal_share"), ("quota", "quota_share"))
    told = [f"{name} {percent(host[key])}" for name, key in parts if host.get(key) is not None]
    return f"lost to the machine: {', '.join(told) or 'not told here'}"


def doubts(report: Mapping[str, Any]) -> list[str]:
    """Warnings: why the figures are marked."""
    doubt = (report.get("host") or {}).get("doubt")
    return [doubt] if doubt else []


def latency_table(blocks: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row a latency; those without samples are left out."""
    columns = [Column("latency"), *(Column(p, duration, True) for p in PERCENTILES),
               Column("n", whole, True)]  # fmt: skip
    rows = [
        [name.removesuffix("_ms").upper(), *(block[p] for p in (*PERCENTILES, "n"))]
        for name, block in blocks.items() if block["n"]
    ]  # fmt: skip
    return Table("Latency", columns, rows)


def counted(counts: Mapping[str, int]) -> str:
    """ "3 pass, 1 fail"; what did not happen is left out."""
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n) or "–"


def verdict_of(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Facts: the verdict, and the reasons where there are any."""
    return [("verdict", report["verdict"]), *(("", text) for text in report.get("reasons", ()))]
