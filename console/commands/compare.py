"""`evewatch compare`: the same requests through engines that differ by one setting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options, progress_bar, settings
from console.commands.logged import NoLog, artifacts, keep_log
from console.commands.measured import CODES, Export, check_exports, finish
from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from playbooks.measure.experiment import Experiment

DEFAULTS: dict[str, Any] = {"kv_memory": "512M", "max_batch": 32}


@engine_options
def compare(
    flags: dict[str, Any],
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", help="One that ships (owners_table), or a TOML file."),
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", help="Settings of the first arm: a TOML file.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="An arm with this change to the base, like kv_format=fp16; may be repeated. With "
            "--experiment: a setting of its base.",
        ),
    ] = None,
    allow_many: Annotated[
        bool, typer.Option("--allow-many", help="Allow several changes in one arm (a=1,b=2).")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="The experiment's small size: a first look.")
    ] = False,
    scale: Annotated[
        float | None, typer.Option("--scale", help="Times the experiment's lengths.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", help="Rounds of all arms (3).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Requests/s of an open loop that latency is measured with."),
    ] = None,
    requests: Annotated[
        int | None, typer.Option("--requests", help="Of a closed batch (32).")
    ] = None,
    prompt_mean: Annotated[float, typer.Option("--prompt-mean", help="Tokens.")] = 96,
    output_mean: Annotated[float, typer.Option("--output-mean", help="Tokens.")] = 64,
    sigma: Annotated[
        float, typer.Option("--sigma", help="Spread of the lognormal lengths; 0 is none.")
    ] = 0.8,
    seed: Annotated[int | None, typer.Option("--seed", help="Of lengths and times.")] = None,
    quality: Annotated[
        bool | None,
        typer.Option(
            "--quality/--no-quality",
            help="Judge KV formats that have no verdict kept (experiment).",
        ),
    ] = None,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    no_log: NoLog = False,
    quiet: Quiet = False,
) -> None:
    """Change one thing at a time and say what it did.

    Exit code 1: a goal of the experiment is missed, 3: the data do not decide.
    """
    check_exports(export)
    from playbooks.measure.compare import run_compare
    from playbooks.measure.experiment import ExperimentSize, WorkSpec, find_experiment
    from playbooks.optlog.automatic import of_compare
    from playbooks.steps.models import CompareStep

    config = base_config(base, flags, DEFAULTS)
    if experiment is not None:
        found = _overridden(find_experiment(experiment), changes or [], requests)
    else:
        work = WorkSpec(
            prompt_mean, output_mean, sigma, sigma, int(8 * (prompt_mean + output_mean))
        )
        size = ExperimentSize(repeats=repeats or 3, batch_requests=requests or 32)
        found = _from_flags(changes or [], work, size, rate)
    judged = quality if quality is not None else experiment is not None and not quick
    options = CompareStep(experiment or "", quick, judged, scale, repeats, rate, allow_many, seed)
    with progress_bar("requests", quiet) as progress:
        report = run_compare(found, config, options, progress)
    kept = finish(report, as_json, out, export, quiet)
    files = artifacts(kept, out, *(export or ()))
    keep_log(lambda: of_compare(report, tuple(files)), no_log, quiet)
    raise typer.Exit(CODES[report["verdict"]])


def base_config(base: Path | None, flags: dict[str, Any], defaults: dict[str, Any]) -> EngineConfig:
    """Settings of a first arm: from its own file or the usual places, and flags over them."""
    from engine.config import EngineConfig, parse_size

    if base is None:
        return settings(dict(defaults), **flags)
    given = {name: value for name, value in flags.items() if value is not None}
    if "kv_memory" in given:
        given["kv_memory"] = parse_size(given["kv_memory"])
    return EngineConfig.from_toml(base, defaults=defaults, **given)


def parse_change(text: str) -> dict[str, Any]:
    """ "policy=static,reserve=max" -> settings. Raises ConfigError."""
    from engine.config import parse_field

    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"--set {text!r}: expected setting=value, like kv_format=fp16")
        found[name.strip()] = parse_field(name.strip(), value.strip())
    return found


def _from_flags(changes: list[str], work: Any, size: Any, rate: float | None) -> Experiment:
    from playbooks.measure.experiment import ArmSpec, Experiment

    if not changes:
        raise ConfigError(
            "compare: nothing to compare; give --set setting=value, or --experiment NAME"
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


def _overridden(found: Experiment, changes: list[str], requests: int | None) -> Experiment:
    """An experiment with settings of its base, or its batch's size, replaced."""
    from dataclasses import replace

    over = {name: value for text in changes for name, value in parse_change(text).items()}
    if requests is not None:
        size = replace(found.size, batch_requests=requests)
        found = replace(found, size=size, quick=replace(found.quick, batch_requests=requests))
    return replace(found, base=found.base | over)
