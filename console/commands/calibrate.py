"""`evewatch calibrate`: measure outlier channels and static scales of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from console.commands.common import (
    Device,
    Json,
    Kernels,
    Model,
    Quiet,
    emit,
    progress_bar,
    settings,
)

LAYERS_SHOWN = 5


def calibrate(
    model: Model = None,
    device: Device = None,
    kernels: Kernels = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="Text to measure on: .txt, or cases as .toml or .jsonl."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write the calibration here, not to its place for this model."),
    ] = None,
    channels: Annotated[
        int, typer.Option("--channels", help="Most outlier channels of a KV head.")
    ] = 4,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure a model's outlier channels and static KV scales, and keep them for it."""
    config = settings({}, model=model, device=device, kernels=kernels)
    from playbooks.measure.calibrate import run_calibration

    with progress_bar("tokens", quiet) as progress:
        report = run_calibration(config, prompts, out, channels, progress)
    emit(report, as_json, None, calibration_table)


def calibration_table(report: dict[str, Any]) -> None:
    """For people: what stands out, and how far."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{report['model']}: {report['tokens']:,} tokens, the longest context "
        f"{report['longest_context']:,}; {report['channels_beyond']} of {report['channels']:,} K "
        f"channels beyond {report['threshold']:g} × their head's median",
    )
    if report["outliers"]:
        table = Table("layer", "KV head", "channel", "× median", "largest |K|", box=None)
        for column in table.columns:
            column.justify = "right"
        for o in report["outliers"]:
            table.add_row(
                *(str(o[key]) for key in ("layer", "head", "channel")),
                f"{o['ratio']:.1f}",
                f"{o['k_max']:.4g}",
            )
        console.print(table)
    far = sorted(report["layers"], key=lambda row: -row["largest_ratio"])[:LAYERS_SHOWN]
    console.print(
        "farthest out by layer: "
        + ", ".join(f"layer {row['layer']} {row['largest_ratio']:.1f} ×" for row in far),
        f"written to {report['file']}",
        sep="\n",
    )
