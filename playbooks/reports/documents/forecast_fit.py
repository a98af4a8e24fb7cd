"""Document of a fit: what a step costs, and how well that is known."""

from __future__ import annotations

from typing import Any

from playbooks.reports.document import Column, Document, Facts, Table, duration, percent, whole
from playbooks.reports.documents.parts import doubts, host_line


def fit_document(report: dict[str, Any]) -> Document:
    about, held_out = report["fingerprint"], report["held_out"]
    curve = Table(
        "Time of a step by its tokens, with nothing in the cache",
        [Column("tokens", whole, True), Column("time", duration, True)],
        report["curve_ms"],
    )
    error = Table(
        f"Error on {held_out['steps']:,} steps that the fit had not seen",
        [Column("of"), Column("error", percent, True)],
        [["single steps, median", held_out["p50"]], ["single steps, P90", held_out["p90"]],
         ["all steps together", held_out["total"]],
         ["the load that it fits worst", held_out["worst_block"]]],
    )  # fmt: skip
    beside = [
        ("each row", f"{report['row_us']:.0f} µs"),
        ("each token read", f"{report['context_token_ns']:.0f} ns by a decoding row, "
                            f"{report['chunk_context_token_ns']:.0f} ns by each of a prompt's"),
        ("each page sealed", f"{report['sealed_page_us']:.0f} µs"),
        ("chance", f"steps spread by {_share(report['spread'])}, whole loads by "
                   f"{_share(report['drift'])}"),
        ("pool", f"{report['pages']:,} pages of {report['page_tokens']} tokens, at most "
                 f"{report['max_batch']} rows"),
    ]  # fmt: skip
    where = about["url"] or f"{about['machine']}, {about['kernels']} kernels"
    return Document(
        "What a step costs",
        [f"{report['model']}, KV {about['format'] or 'unknown'}, {where}, "
         f"{report['seconds']:.0f} s",
         *([host_line(report)] if report["host"] else [])],
        tables=[curve, error],
        facts=[Facts("", beside)],
        warnings=[*report["notes"], *doubts(report)],
        rows=[report],
    )  # fmt: skip


def _share(value: float | None) -> str:
    return "–" if value is None else f"± {percent(value)}"
