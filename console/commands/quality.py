"""`evewatch quality`: does a KV format change what the model says?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from console.exits import OF_VERDICT
from playbooks.steps.models import QualityStep


@command_options(logs=True)
@step_options(QualityStep, omit=("size", "record", "against"))
def quality(
    engine: EngineFlags,
    output: Output,
    step: QualityStep,
    quick: Annotated[
        bool, typer.Option(help="A third of the cases; the same metrics and limits.")
    ] = False,
) -> None:
    """Compare a KV format's output with fp16's. Exit code 1: it fails, 3: inconclusive."""
    config = engine.config()
    config.with_(kv_format=step.baseline, zero_point=False)  # refuses an unknown baseline
    from playbooks.optlog.automatic import of_quality
    from playbooks.quality.check import run_quality

    spec = replace(step, size="quick" if quick else "full")
    with output.progress("quality") as progress:
        report = run_quality(config, spec, progress)
    output.finish(report, log=lambda files: of_quality(report, files))
    raise typer.Exit(OF_VERDICT[report["verdict"]])
