"""`evewatch ledger`: who holds what while requests come, go and are cancelled."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, emit, engine_options, settings
from console.exits import Exit
from engine.errors import ConfigError


@engine_options
def ledger(
    flags: dict[str, Any],
    requests: Annotated[
        int, typer.Option("--requests", help="Sent; every third is cancelled on its way.")
    ] = 24,
    as_json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Count what requests hold, before, during and after a small load: afterwards it is nothing."""
    if requests < 1:
        raise ConfigError(f"--requests: expected at least 1, got {requests}")
    config = settings({"kv_memory": "256M"}, **flags)
    from console.commands.report import ledger_table
    from playbooks.measure.ledger import run_ledger

    report = run_ledger(config, requests)
    emit(report, as_json, out, ledger_table)
    if report["verdict"] != "pass":
        raise typer.Exit(Exit.GATE_FAILED)
