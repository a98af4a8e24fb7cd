"""A watchkeeper beside whatever a command does: alerts of `--alerts FILE`, and budgets."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from console.commands.settings import alerts_file

if TYPE_CHECKING:
    from engine.snapshot import Snapshot
    from playbooks.alerts.keeper import Message
    from playbooks.alerts.watchkeeper import Services, Targets, Watchkeeper
    from playbooks.objectives.file import Objectives

Alerts = Annotated[
    Path | None,
    typer.Option(
        "--alerts",
        help="TOML file of rules and ways out (docs/alerts.md); else that of evewatch.toml.",
    ),
]


class Watched(Protocol):
    @property
    def stale_after_s(self) -> float: ...

    def snapshot(self) -> Snapshot: ...


def ring() -> None:
    """The terminal's bell, if there is one."""
    with suppress(OSError, AttributeError):
        stream = sys.__stderr__
        if stream is not None and stream.isatty():
            stream.write("\a")
            stream.flush()


def as_of_now(engine: Watched) -> Snapshot:
    """One whose engine has shown nothing new for too long is stale: that is an alert, too."""
    from engine.observing.watchable import aged

    return aged(engine.snapshot(), time.time(), engine.stale_after_s)


def alone(engine: Watched) -> Targets:
    """One engine, called by its model; none before it has shown anything."""

    def targets() -> dict[str, Snapshot]:
        snapshot = as_of_now(engine)
        return {snapshot.engine.model or snapshot.source.target: snapshot} if snapshot.seq else {}

    return targets


@contextmanager
def keeping(
    path: Path | None,
    targets: Targets,
    tell: Callable[[Message], None] = lambda _: None,
    objectives: Objectives | None = None,
    services: Services | None = None,
) -> Iterator[Watchkeeper | None]:
    """Nothing without a file of alerts, given or named in evewatch.toml, and without objectives.
    Raises ConfigError for a file that is wrong, before anything runs."""
    path = path or alerts_file()
    if path is None and objectives is None:
        yield None
        return
    from playbooks.alerts.burn import with_burn_rules
    from playbooks.alerts.file import load
    from playbooks.alerts.watchkeeper import Watchkeeper
    from playbooks.alerts.ways import way_out
    from playbooks.objectives.book import Book

    alerts = None if path is None else load(path, os.environ)
    book = None if objectives is None else Book(objectives)
    ways = [] if alerts is None else [way_out(way, ring, os.environ) for way in alerts.ways]
    if alerts is not None and objectives is not None:
        alerts = with_burn_rules(alerts, objectives)
    keeper = Watchkeeper(alerts, ways, targets, tell, book=book, services=services)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()
