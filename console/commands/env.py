"""`evewatch env`: versions and machine, and whether they go together."""

from __future__ import annotations

from typing import Annotated

import typer

from console.commands.options import command_options
from console.commands.output import Output
from console.exits import OF_VERDICT


@command_options()
def env(
    output: Output,
    pid: Annotated[
        int | None, typer.Option(help="Look for doubled libraries in this process, a server say.")
    ] = None,
) -> None:
    """Check versions, driver, compiler and machine. Exit code 1: something is known to break."""
    from playbooks.environment.step import examine

    report = examine(pid=pid)
    output.finish(report)
    raise typer.Exit(OF_VERDICT[report["verdict"]])
