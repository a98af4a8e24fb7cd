"""`evewatch profile`: where the time of requests goes, and where the engine's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options, progress_bar, settings
from console.commands.measured import Export, check_exports, finish
from console.commands.step_options import step_options
from engine.errors import ConfigError
from playbooks.steps.models import ProfileStep


@engine_options
@step_options(ProfileStep, arrivals="closed:16", lengths="chat*0.1")
def profile(
    flags: dict[str, Any],
    step: ProfileStep,
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
    check_exports(export)
    if trace_out is not None and not trace_out.parent.is_dir():
        raise ConfigError(f"--trace-out {trace_out}: there is no folder {trace_out.parent}")
    config = settings({}, **flags)
    from playbooks.measure.profile import run_profile

    with progress_bar("requests", quiet) as progress:
        report = run_profile(config, step, progress, trace_out)
    finish(report, as_json, out, export, quiet)
