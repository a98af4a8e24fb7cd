"""`evewatch soak`: many requests and storms; nothing may be left and nothing may grow."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options, progress_bar, settings
from console.commands.logged import NoLog, keep_log
from console.commands.measured import CODES, Export, Seed, check_exports, finish


@engine_options
def soak(
    flags: dict[str, Any],
    requests: Annotated[
        int, typer.Option("--requests", help="Short ones, in waves; every third is cancelled.")
    ] = 600,
    waves: Annotated[int, typer.Option("--waves", help="Looks at the idle engine.")] = 12,
    duration: Annotated[
        str | None,
        typer.Option("--duration", help="Waves for so long (90s, 20m, 2h) instead of --requests."),
    ] = None,
    storms: Annotated[
        bool, typer.Option("--storms/--no-storms", help="Cancel, timeout, oversized, prefixes.")
    ] = True,
    seed: Seed = 0,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    no_log: NoLog = False,
    quiet: Quiet = False,
) -> None:
    """Look for leaks: slopes per request served, and what grew. Exit code 1: something did."""
    check_exports(export)
    config = settings({"kv_memory": "256M"}, **flags)
    from playbooks.measure.checkup import soak_site
    from playbooks.measure.soak import SoakSpec
    from playbooks.optlog.checklog import soak_record
    from playbooks.runs.site import Site
    from playbooks.runs.spec import seconds

    limit = seconds(duration) if duration is not None else None
    spec = SoakSpec(requests, waves, limit, storms=storms, seed=seed)
    with progress_bar("requests", quiet) as progress:
        report = soak_site(Site(config), spec, progress)
    finish(report, as_json, out, export, quiet)
    keep_log(lambda: [soak_record(report, config)], no_log, quiet)
    raise typer.Exit(CODES[report["verdict"]])
