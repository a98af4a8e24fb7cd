"""`evewatch sweep`: throughput and tail latency over the batch size, and where to stop."""

from __future__ import annotations

from typing import Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options, progress_bar, settings
from console.commands.logged import NoLog, artifacts, keep_log
from console.commands.measured import Export, check_exports, finish
from console.commands.step_options import step_options
from console.exits import Exit
from playbooks.steps.models import SweepStep


@engine_options
@step_options(SweepStep)
def sweep(
    flags: dict[str, Any],
    step: SweepStep,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    no_log: NoLog = False,
    quiet: Quiet = False,
) -> None:
    """Find the knee of throughput over batch size. Exit code 3: the data support none."""
    check_exports(export)
    config = settings({"kv_memory": "512M"}, **flags)
    from playbooks.measure.sweep import run_sweep
    from playbooks.optlog.automatic import of_sweep

    with progress_bar("requests", quiet) as progress:
        report = run_sweep(config, step, progress)
    kept = finish(report, as_json, out, export, quiet)
    files = tuple(artifacts(kept, out, *(export or ())))
    keep_log(lambda: of_sweep(report, files, config.max_batch), no_log, quiet)
    if report["abstained"]:
        raise typer.Exit(Exit.INCONCLUSIVE)
