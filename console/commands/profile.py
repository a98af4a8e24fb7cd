"""`evewatch profile`: where the time of requests goes, and where the engine's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from engine.errors import ConfigError
from playbooks.steps.models import ProfileStep


@command_options(also=(".svg",))
@step_options(ProfileStep, arrivals="closed:16", lengths="chat*0.1")
def profile(
    engine: EngineFlags,
    output: Output,
    step: ProfileStep,
    trace_out: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace of a few steps here.")
    ] = None,
) -> None:
    """Find the bottleneck: six stages of a request, parts of a step, kernels of a pass."""
    if trace_out is not None and not trace_out.parent.is_dir():
        raise ConfigError(f"--trace-out {trace_out}: there is no folder {trace_out.parent}")
    config = engine.config()
    from playbooks.measure.profile import run_profile

    with output.progress("requests") as progress:
        report = run_profile(config, step, progress, trace_out)
    output.finish(report, keep=True)
