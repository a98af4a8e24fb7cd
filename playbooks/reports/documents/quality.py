"""A quality check as a document: gates, categories, controls, suspects, the worst answers."""

from __future__ import annotations

from typing import Any

from playbooks.reports.document import Cell, Column, Document, Facts, Table, whole
from playbooks.reports.documents.parts import verdict_of
from playbooks.reports.language import Name
from playbooks.reports.text import one_line

PROMPT_SHOWN, ANSWER_SHOWN = 160, 280


def quality_document(report: dict[str, Any]) -> Document:
    return Document(
        f"Quality: {report['verdict']}",
        [
            f"{report['model']}: {report['candidate']} against {report['baseline']}, "
            f"{report['cases']} cases, {report['positions']:,} positions, "
            f"{report['seconds']:.0f} s"
        ],
        tables=[_gates(report), _categories(report), *_structured(report), _controls(report)],
        facts=[*map(_worst, report["worst"]), Facts("", verdict_of(report))],
        sentences=[
            *map(_lost, report["structured"]["lost"]),
            *map(_suspect, report["suspects"]),
        ],
        rows=report["gates"],
    )


def number(value: Cell, percent: bool = False) -> str:
    """Divergences are small: 0.00008, 0.0123, 1.23; shares 99.56%."""
    if value is None or isinstance(value, str):
        return value or "–"
    if percent:
        return f"{value:.2%}"
    return f"{value:.5f}" if 0 < abs(value) < 0.1 else f"{value:.3g}"


def share(value: Cell) -> str:
    return number(value, True)


def _gates(report: dict[str, Any]) -> Table:
    columns = [Column("metric"), *(Column(n, numeric=True) for n in ("value", "pass", "fail")),
               Column("verdict")]  # fmt: skip
    rows: list[list[Cell]] = []
    for gate in report["gates"]:
        good, bad = ("≥", "<") if gate["better"] == "higher" else ("≤", "≥")
        percent = gate["percent"]
        rows.append(
            [gate["title"], number(gate["value"], percent),
             f"{good} {number(gate['pass'], percent)}", f"{bad} {number(gate['fail'], percent)}",
             gate["verdict"]]
        )  # fmt: skip
    return Table("Gates", columns, rows)


def _categories(report: dict[str, Any]) -> Table:
    columns = [
        Column("category"), Column("cases", whole, True), Column("positions", whole, True),
        Column("mean KLD", number, True), Column("99 % KLD", number, True),
        Column("top-1", share, True), Column("RMS Δp", share, True),
    ]  # fmt: skip
    names = ("cases", "positions", "mean_kld", "p99_kld", "top1_agreement", "rms_dp")
    rows = [[category.replace("_", " "), *(row[name] for name in names)]
            for category, row in report["categories"].items()]  # fmt: skip
    return Table("Categories", columns, rows)


def _structured(report: dict[str, Any]) -> list[Table]:
    columns = [Column("structured output"), Column("tasks", whole, True),
               Column("valid before", whole, True), Column("valid now", whole, True)]  # fmt: skip
    rows: list[list[Cell]] = [
        [row["kind"].replace("_", " "), row["tasks"], row["baseline"], row["candidate"]]
        for row in report["structured"]["kinds"]
    ]
    return [Table("Structured output", columns, rows)] if rows else []


def _lost(task: dict[str, Any]) -> str:
    said, right = (one_line(task[key], ANSWER_SHOWN) for key in ("candidate", "right"))
    return f"no longer valid: {task['task']}: “{said}”; right: “{right}”"


def _controls(report: dict[str, Any]) -> Table:
    columns = [Column("control"), Column("verdict"), Column("as it must"),
               Column("mean KLD", number, True), Column("injected")]  # fmt: skip
    rows: list[list[Cell]] = []
    for control in report["controls"].values():
        injected = "; ".join(
            f"layer {pair['layer']}, KV head {pair['head']}, channels "
            f"{', '.join(map(str, pair['channels']))}"
            for pair in control["injected"]
        )
        rows.append([control["note"], control["verdict"], "yes" if control["ok"] else "misbehaves",
                     control["metrics"]["mean_kld"], injected])  # fmt: skip
    return Table("Controls", columns, rows)


def _suspect(s: dict[str, Any]) -> str:
    return (
        f"suspect: layer {s['layer']}, KV head {s['head']}, channel {s['channel']}: "
        f"{s['ratio']:.1f} × the head's median, {s['why']} "
        f"(error of the layer's keys {s['layer_error']:.1%})"
    )


def _worst(case: dict[str, Any]) -> Facts:
    at = case["first_divergence"]
    where = "same answer" if at is None else f"answers part at token {at}"
    kind = case["category"].replace("_", " ")
    title = f"Worst: {case['case']} ({kind}), mean KLD {number(case['mean_kld'])}, {where}"
    widths = (("prompt", PROMPT_SHOWN), ("baseline", ANSWER_SHOWN), ("candidate", ANSWER_SHOWN))
    return Facts(title, [(name, Name(one_line(case[name], width))) for name, width in widths])
