"""`evewatch bench`: a closed batch, beside the machine's own limit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, emit, engine_options, progress_bar, settings
from console.exits import Exit
from engine.errors import ConfigError


@engine_options
def bench(
    flags: dict[str, Any],
    requests: Annotated[int, typer.Option("--requests", help="How many.")] = 32,
    prompt_mean: Annotated[float, typer.Option("--prompt-mean", help="Tokens.")] = 96,
    output_mean: Annotated[float, typer.Option("--output-mean", help="Tokens.")] = 64,
    sigma: Annotated[
        float, typer.Option("--sigma", help="Spread of the lognormal lengths; 0 is none.")
    ] = 0.8,
    seed: Annotated[int, typer.Option("--seed", help="Of lengths and prompts.")] = 0,
    workload: Annotated[
        Path | None,
        typer.Option("--workload", help='Requests from a JSON list of {"prompt", "out"}.'),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", help="Serve it so often; the median run is reported.")
    ] = 1,
    check_crosstalk: Annotated[
        bool,
        typer.Option("--check-crosstalk", help="Also compare marked requests with solo runs."),
    ] = False,
    with_console: Annotated[
        bool,
        typer.Option(
            "--with-console",
            help="Also measure what the console costs: runs without and with it in turns.",
        ),
    ] = False,
    as_json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Serve a closed batch of requests and compare with the machine's own limit."""
    if not 0 <= sigma <= 4:
        raise ConfigError(f"--sigma: expected 0 to 4, got {sigma:g}")
    if repeats < 1:
        raise ConfigError(f"--repeats: expected at least 1, got {repeats}")
    config = settings({}, **flags)
    from console.commands.report import bench_table
    from playbooks.measure.bench import BenchSpec, run_bench

    spec = BenchSpec(requests, prompt_mean, output_mean, sigma, seed, workload)
    with progress_bar("requests", quiet) as progress:
        if with_console:
            report = _with_console(config, spec, repeats, check_crosstalk, progress)
        else:
            report = run_bench(config, spec, repeats, check_crosstalk, progress)
    emit(report, as_json, out, bench_table)
    if check_crosstalk and report["crosstalk"]["mixed"]:
        raise typer.Exit(Exit.GATE_FAILED)


def _with_console(config: Any, spec: Any, repeats: int, crosstalk: bool, progress: Any) -> Any:
    """The report, with what the console cost and how fast it answered keys meanwhile."""
    from console.commands.headless_console import HeadlessConsole, KeyPresser
    from playbooks.measure.bench import latency_block, run_bench

    presser = KeyPresser()
    report = run_bench(config, spec, repeats, crosstalk, progress, HeadlessConsole, presser.beside)
    report["console"]["key_ms"] = latency_block(list(presser.milliseconds))
    return report
