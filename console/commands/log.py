"""`evewatch log`: the optimization log: list, show, add, export, verify, diff."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from console.commands.log_handover import handover
from console.commands.options import command_options
from console.commands.output import Output, file_format, write_text
from console.commands.streams import say
from console.exits import Exit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.optlog import OptLog, Reading

log_app = typer.Typer(
    help="The optimization log: what was changed, why, what it did, what went wrong.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
FORMATS = ("md", "csv", "json", "html")
File = Annotated[Path | None, typer.Option(help="Another log than the user's own (optlog.jsonl).")]


class Picked:
    """The records that `list` and `export` are asked for. Raises ConfigError."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "since": Annotated[
            str | None,
            typer.Option("--since", help="From this time on: 2026-09-30, …T18:00, or 7d ago."),
        ],
        "until": Annotated[
            str | None, typer.Option("--until", help="Up to this time; a day to its end.")
        ],
        "decision": Annotated[
            list[str] | None,
            typer.Option("--decision", help="adopt, reject, hold or rolled_back; repeatable."),
        ],
        "metric": Annotated[
            str | None,
            typer.Option("--metric", help="Part of a metric's or a changed setting's name."),
        ],
        "text": Annotated[
            str | None, typer.Option("--text", help="Words that all occur in the record.")
        ],
        "last": Annotated[int | None, typer.Option("--last", help="Only so many of the newest.")],
        "file": File,
    }

    def __init__(
        self, since: str | None, until: str | None, decision: list[str] | None,
        metric: str | None, text: str | None, last: int | None, file: Path | None,
    ) -> None:  # fmt: skip
        from playbooks.optlog.select import Selection, moment

        names = tuple(name for given in decision or () for name in given.split(","))
        selection = Selection(
            moment(since, "--since"), moment(until, "--until", end=True), names, metric, text, last
        )
        self.log, self.reading = _read(file)
        self.records = selection.of(self.reading.records)


@log_app.command("list")
@command_options()
def log_list(output: Output, picked: Picked) -> None:
    """Records in their order, one a line."""
    from playbooks.optlog.export import report_of

    _warn(picked.reading, output)
    output.finish(report_of(picked.records, picked.reading, picked.log.path))


@log_app.command("show")
@command_options()
def log_show(
    output: Output,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Or the beginning of one; the last by default."),
    ] = None,
    file: File = None,
) -> None:
    """Records in full."""
    log, reading = _read(file)
    records = [reading.find(name) for name in ids or ["last"]]
    from console.commands.terminal import show_records
    from playbooks.optlog.export import report_of

    _warn(reading, output)
    report = report_of(records, reading, log.path)
    output.finish(report, show=lambda: show_records(records))


@log_app.command("add")
@command_options()
def log_add(
    output: Output,
    title: Annotated[str | None, typer.Option(help="In a few words.")] = None,
    why: Annotated[str, typer.Option(help="The hypothesis, or the reason.")] = "",
    what: Annotated[
        list[str] | None,
        typer.Option(help="key=before:after, like max_batch=64:48; may be repeated."),
    ] = None,
    effect: Annotated[
        list[str] | None, typer.Option(help="metric=before:after, like e2e_p99_ms=812:430.")
    ] = None,
    how: Annotated[
        list[str] | None, typer.Option(help="fact=value: workload, seed, repeats.")
    ] = None,
    problem: Annotated[
        list[str] | None, typer.Option(help="What went wrong; may be repeated.")
    ] = None,
    decision: Annotated[str, typer.Option(help="adopt, reject, hold or rolled_back.")] = "hold",
    rollback: Annotated[str, typer.Option(help="How to undo it.")] = "",
    claim: Annotated[
        str | None, typer.Option(help="measured (default), inferred or simulated.")
    ] = None,
    operator: Annotated[str | None, typer.Option(help="Who; the user's name by default.")] = None,
    artifact: Annotated[list[str] | None, typer.Option(help="A file that belongs to it.")] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="Decide on this record: its changes and effects are taken."),
    ] = None,
    file: File = None,
) -> None:
    """Write a record by hand, or a decision on one that was measured (--from ID)."""
    from playbooks.optlog.byhand import by_hand, decided, decision_on

    log, reading = _read(file, must_exist=False)
    origin = reading.find(source) if source is not None else None
    record = by_hand(
        what or (),
        effect or (),
        how or (),
        title=title or (decided(origin, decision) if origin else ""),
        why=why,
        problems=problem or (),
        decision=decision,
        rollback=rollback,
        claim=claim or (origin.claim if origin else "measured"),
        operator=operator,
        artifacts=artifact or (),
    )
    record = log.append(decision_on(origin, record) if origin else record)
    for notice in log.notices:
        say(f"evewatch: {notice}")
    from console.commands.terminal import show_records
    from playbooks.optlog.export import report_of

    reading = log.read()
    report = report_of([record], reading, log.path)
    output.finish(report, show=lambda: None if output.quiet else show_records([record]))


@log_app.command("export")
@command_options()
def log_export(
    picked: Picked,
    fmt: Annotated[
        str | None, typer.Option("--format", help="md, csv, json or html; --out's ending if absent")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write it to this file, not to standard output.")
    ] = None,
    quiet: Annotated[bool, typer.Option(help="No word on damage or files.")] = False,
) -> None:
    """The log, or a part of it, as a document."""
    chosen = file_format(fmt, out, FORMATS)
    from playbooks.optlog.export import export

    _warn(picked.reading, Output(quiet=quiet))
    document = export(picked.records, picked.reading, picked.log.path, chosen)
    write_text(out, document)
    if out is not None:
        Output(quiet=quiet).note(f"{len(picked.records)} records written to {out}")


@log_app.command("verify")
@command_options()
def log_verify(
    output: Output,
    head: Annotated[
        str | None, typer.Option(help="A head noted earlier: it must still be in the chain.")
    ] = None,
    file: File = None,
) -> None:
    """Check every record against its id and the chain. Exit code 1: something was changed."""
    log, reading = _read(file, must_exist=file is not None)
    damage = [asdict(found) for found in reading.damage]
    is_known = any(head and h.startswith(head.lower()) for h in reading.hashes)
    is_lost = head is not None and not is_known
    if is_lost:
        text = f"no record has the hash {head}: the records up to it are gone or were changed"
        damage.append({"line": 0, "kind": "chain", "text": text, "id": None})
    whole = reading.intact and not is_lost
    report = {
        "schema": 1,
        "kind": "log_verify",
        "file": str(log.path),
        "verdict": "fail" if not whole else "warn" if damage else "pass",
        "records": len(reading.records),
        "head": reading.head,
        "sealed": reading.sealed,
        "seals_checked": reading.seals_checked,
        "damage": damage,
        "set_aside": log.set_aside(),
    }
    output.finish(report)
    if not whole:
        raise typer.Exit(Exit.GATE_FAILED)


@log_app.command("diff")
@command_options()
def log_diff(
    output: Output,
    a: Annotated[str, typer.Argument(help="Id of a record, or the beginning of one.")],
    b: Annotated[str, typer.Argument(help="The one to hold against it; the last by default.")] = (
        "last"
    ),
    file: File = None,
) -> None:
    """What differs between two records: settings, effects, surroundings."""
    _, reading = _read(file)
    from playbooks.optlog.diff import diff

    _warn(reading, output)
    output.finish(diff(reading.find(a), reading.find(b)))


log_app.command("handover")(handover)


def _read(file: Path | None, must_exist: bool = True) -> tuple[OptLog, Reading]:
    from playbooks.optlog import OptLog

    log = OptLog(file)
    if file is not None and must_exist and not file.exists():
        raise ConfigError(f"--file {file}: there is no such file")
    return log, log.read()


def _warn(reading: Reading, output: Output) -> None:
    for damage in reading.damage:
        output.note(f"log: {damage.text}")
