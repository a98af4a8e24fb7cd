"""`evewatch playbook`: the playbooks that ship, what is in one, and one of your own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import ShippedOrFile, command_options
from console.commands.output import Output
from console.commands.streams import show
from console.exits import OF_VERDICT
from console.locale.lang import _, said
from engine.errors import ConfigError
from playbooks.reports.language import Name

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from playbooks.runs.spec import Playbook

Progress = Callable[[int, int], None]
Tell = Callable[[dict[str, Any]], None]
playbook_app = typer.Typer(
    help="Playbooks: steps, gates and conditions that `check` runs; and their self-test.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@playbook_app.command("list")
@command_options()
def playbook_list(output: Output) -> None:
    """Those that ship."""
    from playbooks.runs import spec

    rows = []
    for name in spec.names():
        book = spec.load(name)
        rows.append({
            "name": name, "title": book.title, "steps": [step.id for step in book.steps],
            "time_budget_s": book.time_budget_s,
        })  # fmt: skip
    output.finish({"schema": 1, "kind": "playbooks", "playbooks": rows})


@playbook_app.command("show")
@command_options()
def playbook_show(output: Output, name: ShippedOrFile) -> None:
    """Steps with all their parameters, gates and conditions, and the metrics there are."""
    from playbooks.runs import spec

    output.finish(_describe(spec.load(name)))


@playbook_app.command("validate")
@command_options()
def playbook_validate(output: Output, name: ShippedOrFile) -> None:
    """Read it and say whether `check` would. Exit code 2: with the line and what is wrong."""
    from playbooks.runs import spec

    book = spec.load(name)
    report = {"schema": 1, "kind": "playbook_validation", "name": book.name, "valid": True,
              "steps": len(book.steps)}  # fmt: skip
    output.finish(report, show=lambda: show(f"{book.name}: valid, {len(book.steps)} steps"))


@playbook_app.command("types")
@command_options()
def playbook_types(output: Output) -> None:
    """What a step of each type can be told, with its default, and what it measures."""
    from playbooks.steps.fields import fields_of
    from playbooks.steps.registry import STEP_TYPES

    types: dict[str, dict[str, Any]] = {
        name: {
            "about": step.about,
            "parameters": {
                field.name: {"default": field.default, "about": field.option.text}
                for field in fields_of(step.model)
            },
            "metrics": dict(step.metrics),
        }
        for name, step in STEP_TYPES.items()
    }

    def show() -> None:
        for name, row in types.items():
            print("\n" + said("{label}: {text}", label=Name(name), text=row["about"]))
            for field, told in row["parameters"].items():
                default = (
                    "" if told["default"] in (None, (), "") else f" [{_as_typed(told['default'])}]"
                )
                print(f"  {field:<19}{_(told['about'])}{default}")
            print("  " + said("gives {names}", names=Name(", ".join(row["metrics"]))))

    output.finish({"schema": 1, "kind": "step_types", "types": types}, show=show)


def _as_typed(value: Any) -> str:
    """As a file or a flag has it: true, 1,2,4; '' for nothing."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(_as_typed, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


@playbook_app.command("schema")
@command_options()
def playbook_schema(output: Output) -> None:
    """JSON Schema of playbook files, for editors; --out FILE.json writes it."""
    from playbooks.runs import schema

    found = schema.playbook_schema()
    output.finish(found, show=lambda: print(json.dumps(found, indent=2, ensure_ascii=False)))


@playbook_app.command("new")
@command_options()
def playbook_new(
    output: Output,
    path: Annotated[Path, typer.Argument(help="The file to write; must end in .toml.")],
    source: Annotated[
        str, typer.Option("--from", help="A shipped playbook to begin with.")
    ] = "quick_check",
    force: Annotated[bool, typer.Option(help="Write over a file.")] = False,
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
    output.finish(report, show=lambda: show(f"{path} written; `evewatch check {path}` runs it"))


@playbook_app.command("selftest")
@command_options(logs=True)
def playbook_selftest(
    engine: EngineFlags,
    output: Output,
    inject: Annotated[
        list[str] | None,
        typer.Option(help="Only this fault (check --list-faults); may be repeated."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of an engine without a fault.")] = 2,
    healthy: Annotated[
        bool, typer.Option("--healthy", help="Only these runs: nothing may be blamed in any.")
    ] = False,
    outside: Annotated[
        bool, typer.Option(help="Faults that clients see: quick_check by URL, each time.")
    ] = False,
) -> None:
    """Put every fault into an engine: would the diagnosis find it? Exit code 1: not all."""
    if seeds < 0:
        raise ConfigError(f"--seeds: expected 0 or more, got {seeds}")
    if healthy and inject:
        raise ConfigError("--healthy: puts no fault into an engine, and --inject names one")
    config = engine.config(kv_memory="512M")
    from playbooks.optlog.checklog import selftest_record

    def tell(row: dict[str, Any]) -> None:
        if not sys.stderr.isatty():
            mark = "found" if row["found"] else "MISSED"
            output.note(f"{row['fault'] or 'healthy'}: {row['first']} ({row['confidence']:.0%}), "
                        f"{mark}, {row['seconds']:.0f} s")  # fmt: skip

    run = _outside if outside else _inside
    with output.progress("runs") as progress:
        report = run(config, [] if healthy else inject, seeds, progress, tell)
    output.finish(report, keep=True, log=lambda _: [selftest_record(report, config)])
    raise typer.Exit(OF_VERDICT[report["verdict"]])


def _inside(
    config: EngineConfig, faults: list[str] | None, seeds: int, progress: Progress, tell: Tell
) -> dict[str, Any]:
    from playbooks.faults.selftest import run_selftest

    return run_selftest(config, faults, seeds, progress, on_row=tell)


def _outside(
    config: EngineConfig, faults: list[str] | None, seeds: int, progress: Progress, tell: Tell
) -> dict[str, Any]:
    """On a server of this process, as `serve` has it."""
    from console.server import ServerSettings, serve_in_thread
    from engine.core import Engine
    from playbooks.faults.outside_selftest import check_outside_fault, run_outside_selftest
    from playbooks.measure.witnessed import witness_of

    for name in faults or ():
        check_outside_fault(name)
    with Engine(config) as engine, serve_in_thread(engine, ServerSettings(port=0)) as server:
        return run_outside_selftest(
            server.url, engine.loaded.spec.name, config, faults, seeds, progress, on_row=tell,
            witness=lambda: witness_of(engine),
        )  # fmt: skip


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
