"""`evewatch compare`: the same requests through engines that differ by one setting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.engine_flags import EngineFlags, parse_change
from console.commands.options import command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from console.exits import OF_VERDICT
from engine.errors import ConfigError
from playbooks.steps.models import CompareStep

if TYPE_CHECKING:
    from playbooks.measure.experiment import Experiment


@command_options(logs=True)
@step_options(CompareStep, omit=("experiment", "quality"), quick=False)
def compare(
    engine: EngineFlags,
    output: Output,
    step: CompareStep,
    experiment: Annotated[
        str | None, typer.Option(help="One that ships (owners_table, kv_pool), or a TOML file.")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="Settings of the first arm: a TOML file.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="KEY=VALUE",
            help="An arm with this change to the base, like kv_format=fp16; may be repeated.",
        ),
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Of a closed batch (32).")] = None,
    prompt_mean: Annotated[float, typer.Option(help="Tokens.")] = 96,
    output_mean: Annotated[float, typer.Option(help="Tokens.")] = 64,
    sigma: Annotated[float, typer.Option(help="Spread of the lognormal lengths; 0 is none.")] = 0.8,
    quality: Annotated[
        bool | None,
        typer.Option(
            "--quality/--no-quality",
            help="Judge KV formats that have no verdict kept (experiment).",
        ),
    ] = None,
) -> None:
    """Change one thing at a time and say what it did.

    Exit code 1: a goal of the experiment is missed, 3: the data do not decide.
    """
    from playbooks.measure.compare import run_compare
    from playbooks.measure.experiment import ExperimentSize, WorkSpec, find_experiment
    from playbooks.optlog.automatic import of_compare

    config = engine.config_over(base, kv_memory="512M", max_batch=32)
    if experiment is not None:
        found = _overridden(find_experiment(experiment), engine.set, changes, requests)
    else:
        work = WorkSpec(
            prompt_mean, output_mean, sigma, sigma, int(8 * (prompt_mean + output_mean))
        )
        size = ExperimentSize(repeats=step.repeats or 3, batch_requests=requests or 32)
        found = _from_flags(changes or [], work, size, step.rate)
    judged = quality if quality is not None else experiment is not None and not step.quick
    options = replace(step, experiment=experiment or "", quality=judged)
    with output.progress("requests") as progress:
        report = run_compare(found, config, options, progress)
    output.finish(report, keep=True, log=lambda files: of_compare(report, files))
    raise typer.Exit(OF_VERDICT[report["verdict"]])


def _from_flags(changes: list[str], work: Any, size: Any, rate: float | None) -> Experiment:
    from playbooks.measure.experiment import ArmSpec, Experiment

    if not changes:
        raise ConfigError(
            "compare: nothing to compare; give --change setting=value, or --experiment NAME "
            "(--set sets the base)"
        )
    arms = [ArmSpec("base"), *(ArmSpec(text, parse_change(text)) for text in changes)]
    return Experiment(
        name="compare",
        title=f"The base against {', '.join(changes)}",
        arms=tuple(arms),
        work=work,
        size=size,
        quick=size,
        rate=rate,
    )


def _overridden(
    found: Experiment, over: dict[str, Any], changes: list[str] | None, requests: int | None
) -> Experiment:
    """An experiment with settings of its base, or its batch's size, replaced."""
    if changes:
        raise ConfigError("--change: an experiment has arms of its own; --set sets its base")
    if requests is not None:
        size = replace(found.size, batch_requests=requests)
        found = replace(found, size=size, quick=replace(found.quick, batch_requests=requests))
    return replace(found, base=found.base | over)
