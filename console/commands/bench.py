"""`evewatch bench`: a closed batch, beside the machine's own limit."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from console.exits import Exit
from engine.errors import ConfigError
from playbooks.steps.models import BenchWork


@command_options()
@step_options(BenchWork)
def bench(
    engine: EngineFlags,
    output: Output,
    step: BenchWork,
    repeats: Annotated[
        int, typer.Option(help="Serve it so often; the median run is reported.")
    ] = 1,
    check_crosstalk: Annotated[
        bool, typer.Option(help="Also compare marked requests with solo runs.")
    ] = False,
    with_console: Annotated[
        bool,
        typer.Option(
            help="Also measure what the console costs: runs without and with it in turns."
        ),
    ] = False,
) -> None:
    """Serve a closed batch of requests and compare with the machine's own limit."""
    if repeats < 1:
        raise ConfigError(f"--repeats: expected at least 1, got {repeats}")
    config = engine.config()
    from playbooks.measure.bench import run_bench

    with output.progress("requests") as progress:
        if with_console:
            report = _with_console(config, step, repeats, check_crosstalk, progress)
        else:
            report = run_bench(config, step, repeats, check_crosstalk, progress)
    output.finish(report, keep=True)
    if check_crosstalk and report["crosstalk"]["mixed"]:
        raise typer.Exit(Exit.GATE_FAILED)


def _with_console(
    config: Any, step: BenchWork, repeats: int, crosstalk: bool, progress: Any
) -> Any:
    """The report, with what the console cost and how fast it answered keys meanwhile."""
    from console.commands.headless_console import HeadlessConsole, KeyPresser
    from playbooks.load.summary import latency_block
    from playbooks.measure.bench import run_bench

    presser = KeyPresser()
    report = run_bench(config, step, repeats, crosstalk, progress, HeadlessConsole, presser.beside)
    report["console"]["key_ms"] = latency_block(list(presser.milliseconds))
    return report
