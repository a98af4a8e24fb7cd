"""`evewatch check`: runs a playbook and says what is wrong, if anything is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, emit, engine_options, progress_bar, settings
from console.commands.logged import NoLog, keep_log
from console.commands.measured import Export, check_exports
from console.exits import Exit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.runs.events import Event
    from playbooks.runs.site import Site, UrlSite
    from playbooks.runs.spec import Playbook

DEFAULTS: dict[str, Any] = {"kv_memory": "512M"}
CODES = {
    "pass": Exit.PASSED,
    "warn": Exit.PASSED,
    "fail": Exit.GATE_FAILED,
    "inconclusive": Exit.INCONCLUSIVE,
    "error": Exit.UNREACHABLE,
}


@engine_options
def check(
    flags: dict[str, Any],
    playbook: Annotated[
        str | None, typer.Argument(help="One that ships (playbook list), or a TOML file.")
    ] = None,
    target: Annotated[
        str, typer.Option("--target", help="embedded, or the URL of an engine.")
    ] = "embedded",
    api: Annotated[
        str, typer.Option("--api", help="Of an endpoint: completions or chat.")
    ] = "completions",
    time_budget: Annotated[
        str | None, typer.Option("--time-budget", help="Like 90s or 20m, for all of it.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Folder for report.json, .md and .html (else your own)."),
    ] = None,
    keep_going: Annotated[
        bool | None,
        typer.Option("--keep-going/--stop-on-fail", help="After a failed step (as it says)."),
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Put every fault into an engine; all must be found."),
    ] = False,
    inject: Annotated[
        list[str] | None,
        typer.Option(
            "--inject", help="Put this fault into the engine first (check --list-faults)."
        ),
    ] = None,
    list_faults: Annotated[
        bool, typer.Option("--list-faults", help="The faults and the causes they stand for.")
    ] = False,
    withhold: Annotated[
        list[str] | None,
        typer.Option("--withhold", help="As if this metric could not be measured; repeatable."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Healthy runs of a self-test.")] = 2,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    no_log: NoLog = False,
    quiet: Quiet = False,
) -> None:
    """Run a playbook: steps, gates and a diagnosis, with a report whatever happens.

    Exit code 0: well, 1: a gate failed or a cause was found, 3: evidence is missing, 4: the
    target is not there. Of an endpoint the bearer token comes from EVEWATCH_API_KEY.
    """
    check_exports(export)
    if list_faults:
        _print_faults(as_json, out)
        return
    if self_test:
        config = settings(dict(DEFAULTS), **flags)
        _self_test(config, inject, seeds, as_json, out, export, no_log, quiet)
        return
    if playbook is None:
        from playbooks.runs.spec import names

        raise ConfigError(f"check: name a playbook ({', '.join(names())}) or use --self-test")
    if inject and len(inject) > 1:
        raise ConfigError("--inject: one fault at a time, so that a finding has one cause")
    _run(playbook, target, api, time_budget, report, keep_going, inject, withhold, flags,
         as_json, out, export, no_log, quiet)  # fmt: skip


def _run(
    name: str, target: str, api: str, time_budget: str | None, folder: Path | None,
    keep_going: bool | None, inject: list[str] | None, withhold: list[str] | None,
    flags: dict[str, Any], as_json: bool, out: Path | None, export: list[Path] | None,
    no_log: bool, quiet: bool,
) -> None:  # fmt: skip
    from playbooks.runs import spec
    from playbooks.runs.runner import CheckOptions, check_options, run_playbook
    from playbooks.steps.durations import seconds

    book = spec.load(name)
    options = CheckOptions(
        seconds(time_budget) if time_budget is not None else None,
        tuple(part.strip() for text in withhold or () for part in text.split(",")),
        inject[0] if inject else None,
        folder,
        not no_log,
        keep_going,
    )
    where = _where(target, api, flags)
    check_options(book, where, options)
    with _signals(), _live(book, quiet) as listener:
        report = run_playbook(book, where, options, listener)
    _write(report, as_json, out, export, quiet)
    raise typer.Exit(Exit.INTERRUPTED if report["state"] == "interrupted"
                     else CODES[report["verdict"]])  # fmt: skip


def _where(target: str, api: str, flags: dict[str, Any]) -> Site | UrlSite:
    if target == "embedded":
        from engine.models import resolve
        from playbooks.runs.site import Site

        config = settings(dict(DEFAULTS), **flags)
        resolve(config.model)  # a model that is not there is refused before anything runs
        return Site(config)
    from playbooks.runs.site import UrlSite

    given = [name for name, value in flags.items() if value is not None]
    if given:
        raise ConfigError(f"--{given[0].replace('_', '-')}: sets the embedded engine, and the "
                          f"target is {target}")  # fmt: skip
    site = UrlSite(target, api)
    site.spec  # noqa: B018 - refuses an address that cannot be
    return site


def _write(
    report: dict[str, Any], as_json: bool, out: Path | None, exports: list[Path] | None,
    quiet: bool,
) -> None:  # fmt: skip
    from console.commands.documents import show_document
    from playbooks.reports.report import export

    for path in exports or ():
        export(report, path)
    emit(report, as_json, out, show_document)
    if not quiet:
        typer.echo(f"evewatch: report in {report['folder']}", err=True)


# --- watching ----------------------------------------------------------------------------------


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM ends a check as Ctrl-C does: with its report."""
    import signal

    def ended(number: int, frame: object) -> None:
        raise KeyboardInterrupt("ended by SIGTERM")

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _live(book: Playbook, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """Lines on standard error; on a terminal the last one moves with the step."""
    from playbooks.runs import events

    terminal = sys.stderr.isatty()
    place = [""]

    def say(text: str, end: str = "\n") -> None:
        if not quiet:
            sys.stderr.write(("\r\x1b[K" if terminal else "") + text + end)
            sys.stderr.flush()

    def listener(event: Event) -> None:
        match event:
            case events.StepStarted(id=name, title=title, number=number, total=total):
                place[0] = f"[{number}/{total}] {name}"
                say(f"{place[0]}: {title}")
            case events.StepProgress(done=done, total=total) if terminal:
                say(f"{place[0]}: {done}" + (f" of {total}" if total else ""), end="")
            case events.GateJudged(verdict=verdict, evidence=evidence) if verdict != "pass":
                say(f"      {verdict}: {evidence}")
            case events.StepEnded(verdict=verdict, seconds=seconds, note=note):
                say(f"      {verdict} ({seconds:.1f} s)" + (f": {note}" if note else ""))

    yield listener


# --- the self-test -------------------------------------------------------------------------------


def _print_faults(as_json: bool, out: Path | None) -> None:
    from playbooks.faults.faults import FAULTS

    rows = [{"fault": f.name, "cause": f.cause, "what": f.title} for f in FAULTS.values()]

    def show(report: dict[str, Any]) -> None:
        for row in report["faults"]:
            typer.echo(f"{row['fault']:<16}{row['cause']:<32}{row['what']}")

    emit({"schema": 1, "kind": "faults", "faults": rows}, as_json, out, show)


def _self_test(
    config: Any, names: list[str] | None, seeds: int, as_json: bool, out: Path | None,
    exports: list[Path] | None, no_log: bool, quiet: bool,
) -> None:  # fmt: skip
    from console.commands.measured import finish
    from playbooks.faults.selftest import run_selftest
    from playbooks.optlog.checklog import selftest_record

    if seeds < 0:
        raise ConfigError(f"--seeds: expected 0 or more, got {seeds}")

    def tell(row: dict[str, Any]) -> None:
        if not quiet and not sys.stderr.isatty():
            mark = "found" if row["found"] else "MISSED"
            typer.echo(f"{row['fault'] or 'healthy'}: {row['first']} ({row['confidence']:.0%}), "
                       f"{mark}, {row['seconds']:.0f} s", err=True)  # fmt: skip

    with progress_bar("runs", quiet) as progress:
        report = run_selftest(config, names, seeds, progress, on_row=tell)
    finish(report, as_json, out, exports, quiet)
    keep_log(lambda: [selftest_record(report, config)], no_log, quiet)
    raise typer.Exit(CODES[report["verdict"]])
