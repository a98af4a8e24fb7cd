"""`evewatch checklist`: list, show, run and export lists that people and the tool go through."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import ShippedOrFile, Target, Token, command_options, duration
from console.commands.output import Output, file_format, write_text
from console.commands.streams import say
from console.exits import OF_VERDICT
from engine.errors import ConfigError

if TYPE_CHECKING:
    from checklists.book import Answer, Checklist
    from checklists.checks import ItemResult

checklist_app = typer.Typer(
    help="Checklists: what must be so before a holiday, a rollout, a change, an upgrade.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
FORMATS = ("md", "html", "csv", "json", "toml")
LOOPBACK = ("//localhost", "//127.", "//[::1]")


@checklist_app.command("list")
@command_options()
def checklist_list(output: Output) -> None:
    """Those that ship."""
    from checklists import book

    rows = []
    for name in book.names():
        found = book.load(name)
        counts = {kind: len(found.of_kind(kind)) for kind in book.KINDS}
        rows.append({"name": name, "title": found.title, **counts})
    output.finish({"schema": 1, "kind": "checklists", "checklists": rows})


@checklist_app.command("show")
@command_options()
def checklist_show(output: Output, name: ShippedOrFile) -> None:
    """Every item, with its owner, why, and how to undo it."""
    from checklists import book

    report = _blank(book.load(name))

    def show() -> None:
        from console.commands.terminal import show_document
        from playbooks.reports.documents.checklist import items_document

        show_document(items_document(report))

    output.finish(report, show=show)


@checklist_app.command("run")
@command_options(logs=True)
def checklist_run(
    engine: EngineFlags,
    output: Output,
    name: ShippedOrFile,
    target: Target = "embedded",
    snapshot: Annotated[
        Path | None, typer.Option(help="Answer from this Snapshot (JSON) instead of a target.")
    ] = None,
    lasting: Annotated[
        float, duration("--duration", "How long an engine at a URL is looked at.")
    ] = 5.0,
    requests: Annotated[int, typer.Option(help="Light traffic on the embedded engine.")] = 100,
    token: Token = None,
    answers: Annotated[
        Path | None, typer.Option(help="Answers to the human items (checklist export … toml).")
    ] = None,
    ask: Annotated[
        bool | None,
        typer.Option("--ask/--no-ask", help="Ask for the human items; by default on a terminal."),
    ] = None,
    sign_off: Annotated[
        str | None, typer.Option(help="Your name: the result goes to the log.")
    ] = None,
) -> None:
    """Answer what can be seen, ask what cannot. Exit code 1: an item fails, 3: some are open."""
    _check_run(requests, sign_off)
    from checklists import book
    from playbooks.optlog.checklog import checklist_record
    from playbooks.runs.checklist import conclude

    checklist = book.load(name)
    given = book.read_answers(answers, sign_off) if answers is not None else {}
    book.merge(checklist, {}, given)  # refuses unknown items before anything runs
    if snapshot is not None:
        target, (took, automatic) = f"snapshot {snapshot}", _of_file(checklist, snapshot)
    elif target == "embedded":
        took, automatic = _of_embedded(checklist, engine, requests, output)
    else:
        from engine.remote.address import shown

        engine.refuse_at(target)
        took, automatic = _of_url(checklist, target, lasting, token)
        target = shown(target)
    if ask if ask is not None else sys.stdin.isatty() and not output.as_json:
        given |= _ask(checklist, automatic, given, sign_off)
    report = conclude(checklist, automatic, given, target, took, sign_off)
    output.finish(
        report, log=(lambda files: [checklist_record(report, files)]) if sign_off else None
    )
    raise typer.Exit(OF_VERDICT[report["verdict"]])


def _check_run(requests: int, sign_off: str | None) -> None:
    if requests < 1:
        raise ConfigError(f"--requests: expected 1 at least, got {requests}")
    if sign_off is not None and not sign_off.strip():
        raise ConfigError("--sign-off: expected the name of whoever answers for it")


Seen = tuple[float, "dict[str, ItemResult]"]
"""Seconds that were looked, and what the automatic items say."""


def _of_file(checklist: Checklist, snapshot: Path) -> Seen:
    from playbooks.runs import checklist as step

    return 0.0, step.answer_all(checklist, step.observe_file(snapshot), None, None)


def _of_embedded(checklist: Checklist, engine: EngineFlags, requests: int, output: Output) -> Seen:
    from playbooks.environment.step import examine
    from playbooks.runs import checklist as step

    config = engine.config(kv_memory="256M")
    with output.progress("requests") as progress:
        seen = step.observe_embedded(config, requests, progress=progress)
    return seen.seconds, step.answer_all(checklist, seen, config, examine())


def _of_url(checklist: Checklist, url: str, seconds: float, token: str | None) -> Seen:
    from playbooks.environment.step import examine
    from playbooks.runs import checklist as step

    if "://" not in url:
        raise ConfigError(f"--target {url!r}: expected embedded, or a URL like http://host:8000")
    seen = step.observe_url(url, seconds, token)
    # The environment that we can examine is this machine's; of another one nothing is known.
    environment = examine() if any(local in url for local in LOOPBACK) else None
    return seen.seconds, step.answer_all(checklist, seen, None, environment)


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
        say(f"\n{item.text}\n  why: {item.why} ({item.owner})")
        if item.command:
            say(f"  find out: {item.command}")
        reply = typer.prompt("  yes, no, n/a, or empty to leave it open", "", err=True,
                             show_default=False).strip().lower()  # fmt: skip
        word = {"y": "yes", "n": "no", "na": "n/a"}.get(reply, reply)
        if word not in ("yes", "no", "n/a"):
            continue
        note = typer.prompt("  note", "", err=True, show_default=False).strip()
        if word == "n/a" and not note:
            say("  left open: n/a needs a note that says why")
            continue
        found[item.id] = Answer(word, by, note)
    return found


@checklist_app.command("export")
def checklist_export(
    name: ShippedOrFile,
    fmt: Annotated[
        str | None,
        typer.Option(
            "--format", help="md (default), html, csv, json, or toml: a file to fill answers in."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write it to this file, not to standard output.")
    ] = None,
) -> None:
    """A checklist as a document, or as a file for --answers."""
    from checklists import book
    from playbooks.reports.formats import WRITERS

    chosen = file_format(fmt, out, FORMATS)
    found = book.load(name)
    text = book.template(found) if chosen == "toml" else WRITERS[f".{chosen}"](_blank(found))
    write_text(out, text)


def _blank(checklist: Checklist) -> dict[str, Any]:
    """Its report before anybody has looked."""
    from checklists.checks import unseen
    from playbooks.runs.checklist import conclude

    open_ = {item.id: unseen(item) for item in checklist.of_kind("auto")}
    return conclude(checklist, open_, {}, "not run")
