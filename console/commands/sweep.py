"""`evewatch sweep`: throughput and tail latency over the batch size, and where to stop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options, progress_bar, settings
from console.commands.logged import NoLog, artifacts, keep_log
from console.commands.measured import Export, Lengths, Seed, check_exports, finish
from console.exits import Exit
from engine.errors import ConfigError


@engine_options
def sweep(
    flags: dict[str, Any],
    batches: Annotated[
        str, typer.Option("--batches", help="Batch sizes, rising: 1,2,4,8.")
    ] = "1,2,4,8,16,32,64",
    repeats: Annotated[int, typer.Option("--repeats", help="Runs of each size.")] = 3,
    lengths: Lengths = "chat*0.05",
    requests_per_user: Annotated[
        int, typer.Option("--requests-per-user", help="Requests of a run, times its batch.")
    ] = 5,
    least_requests: Annotated[
        int, typer.Option("--least-requests", help="Requests of a run at least.")
    ] = 40,
    p99_objective: Annotated[
        float | None,
        typer.Option("--p99-objective", help="Milliseconds that the recommended cap keeps below."),
    ] = None,
    p99_of: Annotated[
        str, typer.Option("--p99-of", help="What the objective is of: e2e, ttft or tpot.")
    ] = "e2e",
    refine: Annotated[
        bool, typer.Option("--refine/--no-refine", help="Measure between the knee's two rungs too.")
    ] = True,
    seed: Seed = 0,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    no_log: NoLog = False,
    quiet: Quiet = False,
) -> None:
    """Find the knee of throughput over batch size. Exit code 3: the data support none."""
    check_exports(export)
    sizes = parse_batches(batches)
    config = settings({"kv_memory": "512M"}, **flags)
    from playbooks.load.mix import parse_mix
    from playbooks.measure.sweep import SweepSpec, run_sweep
    from playbooks.optlog.automatic import of_sweep

    spec = SweepSpec(
        batches=sizes,
        repeats=repeats,
        requests_per_user=requests_per_user,
        least_requests=least_requests,
        seed=seed,
        p99_objective=p99_objective,
        p99_of=f"{p99_of}_ms",
        refine=refine,
    )
    mix = parse_mix(lengths)
    with progress_bar("requests", quiet) as progress:
        report = run_sweep(config, spec, mix, progress)
    kept = finish(report, as_json, out, export, quiet)
    files = tuple(artifacts(kept, out, *(export or ())))
    keep_log(lambda: of_sweep(report, files, config.max_batch), no_log, quiet)
    if report["abstained"]:
        raise typer.Exit(Exit.INCONCLUSIVE)


def parse_batches(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--batches: {text!r}: expected whole numbers with commas, like 1,2,4,8"
        ) from None
