"""`evewatch options`: what could be done, what it gains and risks, and how to go back."""

from __future__ import annotations

from typing import Annotated

import typer

from console.commands.common import Json, Out, Quiet
from console.commands.measured import Export, check_exports, finish


def options(
    sort: Annotated[
        str, typer.Option("--sort", help="gain, risk, cost, or id for the order of the file.")
    ] = "id",
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    quiet: Quiet = False,
) -> None:
    """Show the option matrix, with the gains that were measured here where there are any."""
    check_exports(export)
    from playbooks.measure.options import option_matrix

    finish(option_matrix(sort), as_json, out, export, quiet, keep=False)
