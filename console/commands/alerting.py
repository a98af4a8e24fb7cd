"""`--alerts FILE`: a watchkeeper beside whatever a command does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from console.commands.output import Output

if TYPE_CHECKING:
    from engine.snapshot import Snapshot

Alerts = Annotated[
    Path | None,
    typer.Option("--alerts", help="TOML file of rules and ways out; see docs/alerts.md."),
]


def ring() -> None:
    """The terminal's bell, if there is one."""
    with suppress(OSError, AttributeError):
        stream = sys.__stderr__
        if stream is not None and stream.isatty():
            stream.write("\a")
            stream.flush()


@contextmanager
def keeping(
    path: Path | None, targets: Callable[[], Mapping[str, Snapshot]], output: Output
) -> Iterator[None]:
    """Nothing without a file. Raises ConfigError for one that is wrong, before anything runs."""
    if path is None:
        yield
        return
    from playbooks.alerts.file import load
    from playbooks.alerts.watchkeeper import Watchkeeper
    from playbooks.alerts.ways import way_out

    alerts = load(path, os.environ)
    ways = [way_out(way, ring, os.environ) for way in alerts.ways]
    keeper = Watchkeeper(alerts, ways, targets, lambda message: output.note(message.line))
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()
