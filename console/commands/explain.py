"""`evewatch explain`: from a symptom to its likely cause, or what could be done about it at all."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from console.commands.options import command_options
from console.commands.output import Output
from console.exits import Exit
from engine.errors import ConfigError


@command_options()
def explain(
    output: Output,
    symptom: Annotated[
        list[str] | None,
        typer.Argument(help='In your words, like "p99 up"; without it: all symptoms.'),
    ] = None,
    most: Annotated[int, typer.Option(help="Entries at most.")] = 3,
    options: Annotated[
        bool, typer.Option(help="Instead: what could be done, its gain, risk and cost.")
    ] = False,
    sort: Annotated[str, typer.Option(help="Of --options: gain, risk, cost, or id.")] = "id",
) -> None:
    """Look a symptom up in the quick reference. Exit code 3: nothing fits; it suggests others."""
    if options:
        from playbooks.measure.options import option_matrix

        if symptom:
            raise ConfigError("--options: shows all that could be done; leave the symptom out")
        output.finish(option_matrix(sort))
        return
    if most < 1:
        raise ConfigError(f"--most: expected 1 at least, got {most}")
    report = _look_up(" ".join(symptom or ()).strip(), most)
    output.finish(report)
    if report["query"] and not report["entries"]:
        raise typer.Exit(Exit.INCONCLUSIVE)


def _look_up(query: str, most: int) -> dict[str, Any]:
    from checklists.explain import load_entries, search, suggest

    entries = load_entries()
    hits = search(query, entries, most) if query else []
    return {
        "schema": 1,
        "kind": "explain",
        "query": query,
        "entries": [asdict(hit.entry) | {"score": round(hit.score, 2)} for hit in hits],
        "suggestions": [] if hits else suggest(query, entries, most=5 if query else len(entries)),
    }
