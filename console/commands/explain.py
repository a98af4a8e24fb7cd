"""`evewatch explain`: from a symptom to its likely cause, how to make sure, and what to do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, emit
from console.exits import Exit
from engine.errors import ConfigError


def explain(
    symptom: Annotated[
        list[str] | None,
        typer.Argument(help='In your words, like "p99 up"; without it: all symptoms.'),
    ] = None,
    most: Annotated[int, typer.Option("--most", help="Entries at most.")] = 3,
    as_json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Look a symptom up in the quick reference. Exit code 3: nothing fits; it suggests others."""
    if most < 1:
        raise ConfigError(f"--most: expected 1 at least, got {most}")
    from checklists.explain import load_entries, search, suggest

    entries = load_entries()
    query = " ".join(symptom or ()).strip()
    hits = search(query, entries, most) if query else []
    report = {
        "schema": 1,
        "kind": "explain",
        "query": query,
        "entries": [hit.entry.to_dict() | {"score": round(hit.score, 2)} for hit in hits],
        "suggestions": [] if hits else suggest(query, entries, most=5 if query else len(entries)),
    }
    emit(report, as_json, out, _print_entries)
    if query and not hits:
        raise typer.Exit(Exit.INCONCLUSIVE)


def _print_entries(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not report["entries"]:
        if report["query"]:
            console.print(Text(f"nothing fits {report['query']!r}; perhaps one of these:"))
        for name in report["suggestions"]:
            console.print(Text(f"  {name}"))
        return
    for i, entry in enumerate(report["entries"]):
        if i:
            console.print()
        console.print(Text(entry["symptom"], "bold"))
        console.print(Text(f"  likely: {entry['likely']}"))
        for command in entry["confirm"]:
            console.print(Text(f"  confirm: {command}", "cyan"))
        console.print(Text(f"  look for: {entry['look_for']}"))
        console.print(Text(f"  do: {entry['remedy']} ({entry['applies']})"))
        console.print(Text(f"  undo: {entry['undo']}", "dim"))
