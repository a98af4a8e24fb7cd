"""`evewatch checklist`: list, show, run and export lists that people and the tool go through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, emit, engine_options, progress_bar, settings
from console.commands.logged import NoLog, artifacts, keep_log
from console.commands.measured import CODES, Export, check_exports
from engine.errors import ConfigError

if TYPE_CHECKING:
    from checklists.book import Answer, Checklist
    from checklists.checks import ItemResult

checklist_app = typer.Typer(
    help="Checklists: what must be so before a holiday, a rollout, a change, an upgrade.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(help="One that ships (checklist list), or a TOML file.")]
FORMATS = ("md", "html", "csv", "json", "toml")
STYLES = {"pass": "green", "warn": "yellow", "fail": "red", "unknown": "magenta",
          "inconclusive": "magenta"}  # fmt: skip
LOOPBACK = ("//localhost", "//127.", "//[::1]")


@checklist_app.command("list")
def checklist_list(as_json: Json = False, out: Out = None, quiet: Quiet = False) -> None:
    """Those that ship."""
    from checklists import book

    rows = []
    for name in book.names():
        found = book.load(name)
        counts = {kind: len(found.of_kind(kind)) for kind in book.KINDS}
        rows.append({"name": name, "title": found.title, **counts})
    report = {"schema": 1, "kind": "checklists", "checklists": rows}

    def show(report: dict[str, Any]) -> None:
        for row in report["checklists"]:
            typer.echo(f"{row['name']:<18}{row['title']} ({row['auto']} automatic, "
                       f"{row['human']} human)")  # fmt: skip

    emit(report, as_json, out, show)


@checklist_app.command("show")
def checklist_show(
    name: Name, as_json: Json = False, out: Out = None, quiet: Quiet = False
) -> None:
    """Every item, with its owner, why, and how to undo it."""
    from checklists import book

    emit(_blank(book.load(name)), as_json, out, _print_items)


@checklist_app.command("run")
@engine_options
def checklist_run(
    flags: dict[str, Any],
    name: Name,
    target: Annotated[
        str, typer.Option("--target", help="embedded, or the URL of an engine.")
    ] = "embedded",
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", help="Answer from this Snapshot (JSON) instead of a target."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", help="How long an engine at a URL is looked at.")
    ] = 5.0,
    requests: Annotated[
        int, typer.Option("--requests", help="Light traffic on the embedded engine.")
    ] = 100,
    token_env: Annotated[
        str | None, typer.Option("--token-env", help="Variable that holds the URL's bearer token.")
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help="Answers to the human items (checklist export … toml)."),
    ] = None,
    ask: Annotated[
        bool | None,
        typer.Option("--ask/--no-ask", help="Ask for the human items; by default on a terminal."),
    ] = None,
    sign_off: Annotated[
        str | None, typer.Option("--sign-off", help="Your name: the result goes to the log.")
    ] = None,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    no_log: NoLog = False,
    quiet: Quiet = False,
) -> None:
    """Answer what can be seen, ask what cannot. Exit code 1: an item fails, 3: some are open."""
    check_exports(export)
    _check_run(seconds, requests, sign_off)
    from checklists import book
    from playbooks.runs.checklist import conclude

    checklist = book.load(name)
    given = book.read_answers(answers, sign_off) if answers is not None else {}
    book.merge(checklist, {}, given)  # refuses unknown items before anything runs
    where, took, automatic = _observe(
        checklist, flags, target, snapshot, seconds, requests, token_env, quiet
    )
    if ask if ask is not None else sys.stdin.isatty() and not as_json:
        given |= _ask(checklist, automatic, given, sign_off)
    report = conclude(checklist, automatic, given, where, took, sign_off)
    _write(report, as_json, out, export, no_log, quiet)
    raise typer.Exit(CODES[report["verdict"]])


def _check_run(seconds: float, requests: int, sign_off: str | None) -> None:
    if not 0 < seconds <= 3600:
        raise ConfigError(f"--seconds: expected above 0 and at most 3600, got {seconds:g}")
    if requests < 1:
        raise ConfigError(f"--requests: expected 1 at least, got {requests}")
    if sign_off is not None and not sign_off.strip():
        raise ConfigError("--sign-off: expected the name of whoever answers for it")


def _observe(
    checklist: Checklist, flags: dict[str, Any], target: str, snapshot: Path | None,
    seconds: float, requests: int, token_env: str | None, quiet: bool,
) -> tuple[str, float, dict[str, ItemResult]]:  # fmt: skip
    """Where it was looked, for how long, and what the automatic items say."""
    from playbooks.environment.step import examine
    from playbooks.runs import checklist as step

    if snapshot is not None:
        seen = step.observe_file(snapshot)
        return f"snapshot {snapshot}", 0.0, step.answer_all(checklist, seen, None, None)
    if target == "embedded":
        config = settings({"kv_memory": "256M"}, **flags)
        with progress_bar("requests", quiet) as progress:
            seen = step.observe_embedded(config, requests, progress=progress)
        return target, seen.seconds, step.answer_all(checklist, seen, config, examine())
    if "://" not in target:
        raise ConfigError(f"--target {target!r}: expected embedded, or a URL like http://host:8000")
    from engine.remote.address import read_token

    seen = step.observe_url(target, seconds, read_token(token_env))
    # The environment that we can examine is this machine's; of another one nothing is known.
    environment = examine() if any(local in target for local in LOOPBACK) else None
    return target, seen.seconds, step.answer_all(checklist, seen, None, environment)


def _ask(
    checklist: Checklist, automatic: dict[str, ItemResult], given: dict[str, Answer],
    by: str | None,
) -> dict[str, Answer]:  # fmt: skip
    """Ask for each item that is open; an empty answer leaves it so."""
    from checklists.book import Answer

    found: dict[str, Answer] = {}
    unseen = [item for item in checklist.items
              if item.kind == "human" or automatic[item.id].verdict == "unknown"]  # fmt: skip
    for item in unseen:
        if item.id in given:
            continue
        typer.echo(f"\n{item.text}\n  why: {item.why} ({item.owner})", err=True)
        if item.command:
            typer.echo(f"  find out: {item.command}", err=True)
        reply = typer.prompt("  yes, no, n/a, or empty to leave it open", "", err=True,
                             show_default=False).strip().lower()  # fmt: skip
        word = {"y": "yes", "n": "no", "na": "n/a"}.get(reply, reply)
        if word not in ("yes", "no", "n/a"):
            continue
        note = typer.prompt("  note", "", err=True, show_default=False).strip()
        if word == "n/a" and not note:
            typer.echo("  left open: n/a needs a note that says why", err=True)
            continue
        found[item.id] = Answer(word, by, note)
    return found


def _write(
    report: dict[str, Any], as_json: bool, out: Path | None, exports: list[Path] | None,
    no_log: bool, quiet: bool,
) -> None:  # fmt: skip
    from playbooks.reports.checkdoc import checklist_record
    from playbooks.reports.report import export

    for path in exports or ():
        export(report, path)
    emit(report, as_json, out, _print_result)
    if report["signed_off_by"]:
        files = tuple(artifacts(out, *(exports or ())))
        keep_log(lambda: [checklist_record(report, files)], no_log, quiet)


@checklist_app.command("export")
def checklist_export(
    name: Name,
    fmt: Annotated[
        str | None,
        typer.Option(
            "--format", help="md (default), html, csv, json, or toml: a file to fill answers in."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write it to this file, not to standard output.")
    ] = None,
) -> None:
    """A checklist as a document, or as a file for --answers."""
    from checklists import book
    from playbooks.reports.report import WRITERS

    chosen = fmt or (out.suffix.lower().lstrip(".") if out is not None else "md")
    if chosen not in FORMATS:
        raise ConfigError(f"--format: {chosen!r} is not one of {', '.join(FORMATS)}")
    found = book.load(name)
    text = book.template(found) if chosen == "toml" else WRITERS[f".{chosen}"](_blank(found))
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, "utf-8", newline="")
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written ({error.strerror})") from error


def _blank(checklist: Checklist) -> dict[str, Any]:
    """Its report before anybody has looked."""
    from checklists.checks import ItemResult
    from playbooks.runs.checklist import conclude

    open_ = {item.id: ItemResult("unknown", f"looks at {item.look}: {item.expect or 'its verdict'}")
             for item in checklist.of_kind("auto")}  # fmt: skip
    return conclude(checklist, open_, {}, "not run")


def _print_items(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(report["title"], "bold"))
    console.print(Text(report["about"]))
    for row in report["items"]:
        console.print()
        mark = "automatic" if row["kind"] == "auto" else "human"
        console.print(Text(f"☐ {row['text']}", "bold"))
        console.print(Text(f"  {row['id']}: {mark}, {row['severity']}; {row['owner']}", "dim"))
        for name in ("why", "remedy", "undo", "command"):
            if row[name]:
                console.print(Text(f"  {name}: {row[name]}"))


def _print_result(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("verdict", "item", "evidence"):
        table.add_column(column, overflow="fold")
    for row in report["items"]:
        style = STYLES[row["verdict"]]
        words = Text(row["evidence"])
        if row["by"]:
            words.append(f" ({row['by']})", "dim")
        if row["verdict"] in ("warn", "fail") and row["remedy"]:
            words.append(f"\n→ {row['remedy']}", style)
        table.add_row(Text(row["verdict"], style), Text(row["text"]), words)
    console.print(table)
    counts = ", ".join(f"{n} {verdict}" for verdict, n in report["counts"].items() if n)
    console.print(Text(report["verdict"], STYLES[report["verdict"]]), Text(f"({counts})"))
