"""`evewatch env`: versions and machine, and whether they go together."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, emit
from console.exits import Exit

STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "dim"}


def env(
    pid: Annotated[
        int | None,
        typer.Option("--pid", help="Look for doubled libraries in this process, a server say."),
    ] = None,
    as_json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Check versions, driver, compiler and machine. Exit code 1: something is known to break."""
    from playbooks.environment.step import examine

    report = examine(pid=pid)
    emit(report, as_json, out, env_table)
    if report["verdict"] == "fail":
        raise typer.Exit(Exit.GATE_FAILED)


def env_table(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("verdict", "what", "value", "evidence"):
        table.add_column(column, overflow="fold")
    for check in report["checks"]:
        style = STYLES[check["verdict"]]
        words = Text(check["evidence"])
        if check["remedy"]:
            words.append(f"\n→ {check['remedy']}", style)
        if check["source"] and check["verdict"] in ("warn", "fail"):
            words.append(f"\n  source: {check['source']}", "dim")
        name = Text(check["id"].replace("_", " "))
        table.add_row(Text(check["verdict"], style), name, Text(check["value"]), words)
    console.print(table)
    counts = ", ".join(f"{n} {verdict}" for verdict, n in report["counts"].items() if n)
    console.print(Text(report["verdict"], STYLES[report["verdict"]]), Text(f"({counts})"))
