"""`evewatch playbook`: the playbooks that ship, what is in one, and one of your own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, emit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.runs.spec import Playbook

playbook_app = typer.Typer(
    help="Playbooks: steps, gates and conditions that `check` runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(help="One that ships (playbook list), or a TOML file.")]


@playbook_app.command("list")
def playbook_list(as_json: Json = False, out: Out = None, quiet: Quiet = False) -> None:
    """Those that ship."""
    from playbooks.runs import spec

    rows = []
    for name in spec.names():
        book = spec.load(name)
        rows.append({
            "name": name, "title": book.title, "steps": [step.id for step in book.steps],
            "time_budget_s": book.time_budget_s,
        })  # fmt: skip

    def show(report: dict[str, Any]) -> None:
        for row in report["playbooks"]:
            typer.echo(f"{row['name']:<14}{row['title']} ({', '.join(row['steps'])})")

    emit({"schema": 1, "kind": "playbooks", "playbooks": rows}, as_json, out, show)


@playbook_app.command("show")
def playbook_show(name: Name, as_json: Json = False, out: Out = None, quiet: Quiet = False) -> None:
    """Steps with all their parameters, gates and conditions, and the metrics there are."""
    from playbooks.runs import spec

    emit(_describe(spec.load(name)), as_json, out, _show)


@playbook_app.command("validate")
def playbook_validate(
    name: Name, as_json: Json = False, out: Out = None, quiet: Quiet = False
) -> None:
    """Read it and say whether `check` would. Exit code 2: with the line and what is wrong."""
    from playbooks.runs import spec

    book = spec.load(name)
    report = {"schema": 1, "kind": "playbook_validation", "name": book.name, "valid": True,
              "steps": len(book.steps)}  # fmt: skip
    emit(report, as_json, out, lambda r: typer.echo(f"{r['name']}: valid, {r['steps']} steps"))


@playbook_app.command("new")
def playbook_new(
    path: Annotated[Path, typer.Argument(help="The file to write; must end in .toml.")],
    source: Annotated[
        str, typer.Option("--from", help="A shipped playbook to begin with.")
    ] = "quick_check",
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
    as_json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """A copy of a shipped one, to change."""
    from playbooks.runs import spec

    if path.suffix != ".toml":
        raise ConfigError(f"{path}: expected a name ending in .toml")
    if path.exists() and not force:
        raise ConfigError(f"{path}: exists already; give another name, or --force")
    found = spec.load(source).path
    assert found is not None, "a playbook that was read has a path"
    try:
        path.write_text(found.read_text("utf-8"), "utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    report = {"schema": 1, "kind": "playbook_new", "file": str(path), "from": source}
    emit(report, as_json, out, lambda r: typer.echo(
        f"{r['file']} written; `evewatch check {r['file']}` runs it"))  # fmt: skip


def _describe(book: Playbook) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "playbook",
        "name": book.name,
        "title": book.title,
        "about": book.about,
        "time_budget_s": book.time_budget_s,
        "continue_on_fail": book.continue_on_fail,
        "diagnose": book.diagnose,
        "looks_at": sorted(book.judged),
        "steps": [
            {
                "id": step.id,
                "kind": step.kind,
                "title": step.title,
                "when": step.when.text if step.when is not None else None,
                "budget_s": step.budget_s,
                "parameters": asdict(step.parameters),
                "gates": [
                    {"metric": g.metric, "op": g.op, "value": g.value, "severity": g.severity}
                    for g in step.gates
                ],
                "metrics": dict(step.type.metrics),
            }
            for step in book.steps
        ],
    }


def _show(report: dict[str, Any]) -> None:
    budget = report["time_budget_s"]
    limit = f", {budget:.0f} s at most" if budget else ""
    typer.echo(f"{report['name']}: {report['title']}{limit}\n{report['about']}")
    for step in report["steps"]:
        typer.echo(f"\n{step['id']} ({step['kind']}): {step['title']}")
        if step["when"]:
            typer.echo(f"  when   {step['when']}")
        given = ", ".join(f"{k}={v}" for k, v in step["parameters"].items() if v is not None)
        if given:
            typer.echo(f"  with   {given}")
        for gate in step["gates"]:
            typer.echo(f"  gate   {gate['metric']} {gate['op']} {gate['value']:g} "
                       f"({gate['severity']})")  # fmt: skip
        typer.echo(f"  gives  {', '.join(step['metrics'])}")
