"""`evewatch model`: what model files hold, without loading weights; and calibrating one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import command_options
from console.commands.output import Output
from engine.errors import ModelError

model_app = typer.Typer(
    help="What model files hold, and calibrations of models.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@model_app.command("info")
@command_options()
def model_info(
    output: Output,
    model: Annotated[str, typer.Argument(help="`embedded`, a folder or a GGUF file.")] = "embedded",
) -> None:
    """Architecture, size and encodings of a model."""
    from engine import models

    found = models.describe(models.resolve(model))
    report = {
        "schema": 1,
        "kind": "model",
        "path": str(found.path),
        "identity": found.identity,
        "parameters": found.parameters,
        "file_bytes": found.file_bytes,
        "encodings": found.encodings,
        **asdict(found.spec),
    }
    output.finish(report)


@model_app.command("list")
@command_options()
def model_list(output: Output) -> None:
    """Models that load by name."""
    from engine import models

    found, note = [], None
    try:
        path = models.resolve("embedded")
        found.append({"name": "embedded", "file": path.name, "bytes": path.stat().st_size})
    except ModelError as error:
        note = str(error)
    output.finish({"schema": 1, "kind": "models", "models": found, "note": note})


@model_app.command("calibrate")
@command_options()
def model_calibrate(
    engine: EngineFlags,
    output: Output,
    prompts: Annotated[
        Path | None, typer.Option(help="Text to measure on: .txt, or cases as .toml or .jsonl.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Keep the calibration here, not in its place for this model."),
    ] = None,
    channels: Annotated[int, typer.Option(help="Most outlier channels of a KV head.")] = 4,
) -> None:
    """Measure a model's outlier channels and static KV scales, and keep them for it."""
    config = engine.config()
    from playbooks.measure.calibrate import run_calibration

    with output.progress("tokens") as progress:
        report = run_calibration(config, prompts, save, channels, progress, output.note)
    output.finish(report)
