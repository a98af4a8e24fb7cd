"""`evewatch profile`: where the time of requests goes, and where the engine's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options, progress_bar, settings
from console.commands.measured import Export, Lengths, Seed, check_exports, finish
from engine.errors import ConfigError


@engine_options
def profile(
    flags: dict[str, Any],
    arrivals: Annotated[
        str,
        typer.Option(
            "--arrivals",
            help="closed:USERS[,THINK_S], poisson:RATE, gamma:RATE,CV, constant:RATE or "
            "ramp:FROM-TO/SECONDS.",
        ),
    ] = "closed:16",
    lengths: Lengths = "chat*0.1",
    requests: Annotated[int, typer.Option("--requests", help="How many.")] = 48,
    seed: Seed = 0,
    trace_out: Annotated[
        Path | None,
        typer.Option("--trace-out", help="Write a Chrome trace of a few steps here."),
    ] = None,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    quiet: Quiet = False,
) -> None:
    """Find the bottleneck: six stages of a request, parts of a step, kernels of a pass."""
    if requests < 1:
        raise ConfigError(f"--requests: expected at least 1, got {requests}")
    check_exports(export)
    if trace_out is not None and not trace_out.parent.is_dir():
        raise ConfigError(f"--trace-out {trace_out}: there is no folder {trace_out.parent}")
    config = settings({}, **flags)
    from playbooks.load.arrivals import parse_arrivals
    from playbooks.load.mix import parse_mix
    from playbooks.measure.profile import ProfileSpec, run_profile

    spec = ProfileSpec(parse_arrivals(arrivals), parse_mix(lengths), requests, seed, trace_out)
    with progress_bar("requests", quiet) as progress:
        report = run_profile(config, spec, progress)
    finish(report, as_json, out, export, quiet)
