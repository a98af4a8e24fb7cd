"""What the measuring commands share: writing the result into the optimization log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.optlog import Record

NoLog = Annotated[bool, typer.Option("--no-log", help="Write nothing into the optimization log.")]


def keep_log(make: Callable[[], Sequence[Record]], no_log: bool, quiet: bool) -> list[Record]:
    """Append the records; what stops that is said, and the measurement is not lost for it."""
    if no_log:
        return []
    from playbooks.optlog import OptLog

    log, written = OptLog(), []
    try:
        written = [log.append(record) for record in make()]
    except ConfigError as error:
        typer.echo(f"evewatch: not in the log: {error}", err=True)
    for notice in log.notices:
        typer.echo(f"evewatch: {notice}", err=True)
    if written and not quiet:
        ids = ", ".join(record.id[:8] for record in written)
        typer.echo(f"evewatch: logged as {ids}; `evewatch log show {written[-1].id[:8]}`", err=True)
    return written


def artifacts(*paths: Path | None) -> list[str]:
    """Files that were written beside the record, absolute so that they are found later."""
    return [str(path.resolve()) for path in paths if path is not None]
