"""`evewatch sweep`: throughput and tail latency over the batch size, and where to stop."""

from __future__ import annotations

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from console.exits import Exit
from playbooks.steps.models import SweepStep


@command_options(logs=True, also=(".svg",))
@step_options(SweepStep)
def sweep(engine: EngineFlags, output: Output, step: SweepStep) -> None:
    """Find the knee of throughput over batch size. Exit code 3: the data support none."""
    config = engine.config(kv_memory="512M")
    from playbooks.measure.sweep import run_sweep
    from playbooks.optlog.automatic import of_sweep

    with output.progress("requests") as progress:
        report = run_sweep(config, step, progress)
    output.finish(report, keep=True, log=lambda files: of_sweep(report, files, config.max_batch))
    if report["abstained"]:
        raise typer.Exit(Exit.INCONCLUSIVE)
