"""`evewatch soak`: many requests and storms; nothing may be left and nothing may grow."""

from __future__ import annotations

from typing import Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options, progress_bar, settings
from console.commands.logged import NoLog, keep_log
from console.commands.measured import CODES, Export, check_exports, finish
from console.commands.step_options import step_options
from playbooks.steps.models import SoakStep


@engine_options
@step_options(SoakStep, requests=600, waves=12)
def soak(
    flags: dict[str, Any],
    step: SoakStep,
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
    from playbooks.optlog.checklog import soak_record
    from playbooks.runs.site import Site

    with progress_bar("requests", quiet) as progress:
        report = soak_site(Site(config), step, progress)
    finish(report, as_json, out, export, quiet)
    keep_log(lambda: [soak_record(report, config)], no_log, quiet)
    raise typer.Exit(CODES[report["verdict"]])
