"""`evewatch log handover`: one page for who comes next."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from console.commands.options import command_options
from console.commands.output import Output
from console.commands.settings import objectives
from engine.errors import ConfigError

Since = Annotated[str, typer.Option(help="From this time on: 12h ago, 2026-09-30T18:00.")]
File = Annotated[Path | None, typer.Option(help="Another log than the user's own.")]


@command_options()
def handover(output: Output, since: Since = "12h", file: File = None) -> None:
    """One page for who comes next: what is, what happened, what was done, what to do if.

    --out page.md or page.html writes it to a file.
    """
    from playbooks.handover.gather import gathered
    from playbooks.objectives.book import Book
    from playbooks.optlog import OptLog
    from playbooks.optlog.select import moment

    began, now = moment(since, "--since"), time.time()
    if began is None or began.timestamp() > now:
        raise ConfigError(f"--since {since}: lies in the future; write it like 12h")
    promised = objectives()
    budgets = {} if promised is None else Book(promised).kept()
    output.finish(gathered(OptLog(file), began.timestamp(), now, budgets))
