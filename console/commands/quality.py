"""`evewatch quality`: does a KV format change what the model says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from console.commands.common import (
    CalibrationFile,
    Device,
    Json,
    Kernels,
    KvFormat,
    Model,
    Out,
    OutlierChannels,
    PageTokens,
    Quiet,
    ZeroPoint,
    emit,
    progress_bar,
    settings,
)
from console.commands.logged import NoLog, artifacts, keep_log
from console.exits import Exit

CODES = {
    "pass": Exit.PASSED,
    "warn": Exit.PASSED,
    "fail": Exit.GATE_FAILED,
    "inconclusive": Exit.INCONCLUSIVE,
}
STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "inconclusive": "magenta"}
PROMPT_SHOWN, ANSWER_SHOWN = 160, 280


def quality(
    model: Model = None,
    device: Device = None,
    kernels: Kernels = None,
    kv_format: KvFormat = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="Format that it is held against.")
    ] = "fp16",
    page_tokens: PageTokens = None,
    outlier_channels: OutlierChannels = None,
    zero_point: ZeroPoint = None,
    calibration: CalibrationFile = None,
    cases: Annotated[
        list[Path] | None,
        typer.Option("--cases", help="Cases of your own, .toml or .jsonl; may be repeated."),
    ] = None,
    golden: Annotated[
        bool, typer.Option("--golden/--no-golden", help="Run the golden set that ships.")
    ] = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="A third of the cases; the same metrics and limits.")
    ] = False,
    as_json: Json = False,
    out: Out = None,
    no_log: NoLog = False,
    quiet: Quiet = False,
) -> None:
    """Compare a KV format's output with fp16's. Exit code 1: it fails, 3: inconclusive."""
    config = settings(
        {},
        model=model,
        device=device,
        kernels=kernels,
        kv_format=kv_format,
        page_tokens=page_tokens,
        outlier_channels=outlier_channels,
        zero_point=zero_point,
        calibration=calibration,
    )
    config.with_(kv_format=baseline, zero_point=False)  # refuses an unknown baseline
    from playbooks.optlog.automatic import of_quality
    from playbooks.quality.check import run_quality
    from playbooks.steps.models import QualityStep

    spec = QualityStep("quick" if quick else "full", baseline, tuple(map(str, cases or ())), golden)
    with progress_bar("quality", quiet) as progress:
        report = run_quality(config, spec, progress)
    emit(report, as_json, out, quality_table)
    keep_log(lambda: of_quality(report, tuple(artifacts(out))), no_log, quiet)
    raise typer.Exit(CODES[report["verdict"]])


def quality_table(report: dict[str, Any]) -> None:
    """The whole report for people."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{report['model']}: {report['format']} against {report['baseline']}, "
        f"{report['cases']} cases, {report['positions']:,} positions, {report['seconds']:.0f} s",
    )
    console.print(gate_table(report))
    console.print(category_table(report))
    _print_controls(console, report)
    _print_suspects(console, report["suspects"])
    _print_worst(console, report["worst"])
    style = STYLES[report["verdict"]]
    console.print(f"verdict: [{style}]{report['verdict']}[/{style}]")
    for reason in report["reasons"]:
        console.print(f"  {reason}", markup=False)


def gate_table(report: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("metric", "value", "pass", "fail", "", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for gate in report["gates"]:
        good, bad = ("≥", "<") if gate["better"] == "higher" else ("≤", "≥")
        style = STYLES.get(gate["verdict"], "dim")
        table.add_row(
            gate["title"],
            number(gate["value"], gate["percent"]),
            f"{good} {number(gate['pass'], gate['percent'])}",
            f"{bad} {number(gate['fail'], gate['percent'])}",
            f"[{style}]{gate['verdict']}[/{style}]",
        )
    return table


def category_table(report: dict[str, Any]) -> Any:
    from rich.table import Table

    names = ("cases", "positions", "mean KLD", "99 % KLD", "top-1", "RMS Δp")
    table = Table("category", *names, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in report["categories"].items():
        table.add_row(
            name.replace("_", " "),
            str(row["cases"]),
            f"{row['positions']:,}",
            number(row["mean_kld"]),
            number(row["p99_kld"]),
            number(row["top1_agreement"], True),
            number(row["rms_dp"], True),
        )
    return table


def _print_controls(console: Any, report: dict[str, Any]) -> None:
    for control in report["controls"].values():
        mark = "[green]as it must[/green]" if control["ok"] else "[red]misbehaves[/red]"
        console.print(
            f"control  {control['note']}: {control['verdict']}, {mark} "
            f"(mean KLD {number(control['metrics']['mean_kld'])})"
        )
        for pair in control["injected"]:
            first, second = pair["channels"]
            console.print(
                f"         injected: layer {pair['layer']}, KV head {pair['head']}, "
                f"channels {first} and {second}"
            )


def _print_suspects(console: Any, suspects: list[dict[str, Any]]) -> None:
    for s in suspects:
        console.print(
            f"suspect  layer {s['layer']}, KV head {s['head']}, channel {s['channel']}: "
            f"{s['ratio']:.1f} × the head's median, {s['why']} "
            f"(error of the layer's keys {s['layer_error']:.1%})"
        )


def _print_worst(console: Any, worst: list[dict[str, Any]]) -> None:
    for case in worst:
        at = case["first_divergence"]
        where = "same answer" if at is None else f"answers part at token {at}"
        console.print(
            f"worst    {case['case']} ({case['category']}), "
            f"mean KLD {number(case['mean_kld'])}, {where}",
            markup=False,
        )
        for name, width in (
            ("prompt", PROMPT_SHOWN), ("baseline", ANSWER_SHOWN), ("candidate", ANSWER_SHOWN)
        ):  # fmt: skip
            console.print(f"  {name:<9}  {one_line(case[name], width)}", markup=False)


def one_line(text: str, width: int) -> str:
    """The end of a long text is what was asked last, so its middle goes."""
    text = " ".join(text.split())
    half = width // 2
    return text if len(text) <= width else f"{text[:half]} … {text[-half:]}"


def number(value: float | None, percent: bool = False) -> str:
    if value is None:
        return "–"
    if percent:
        return f"{value:.2%}"
    return f"{value:.5f}" if 0 < abs(value) < 0.1 else f"{value:.3g}"
