"""`evewatch check`: runs a playbook and says what is wrong, if anything is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from signal import SIGTERM
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import (
    Api,
    Guards,
    MaxShare,
    Pid,
    Target,
    Token,
    command_options,
    duration,
)
from console.commands.output import Output
from console.commands.signals import ended_by
from console.commands.streams import StatusLine
from console.exits import OF_VERDICT, Exit
from console.locale.lang import said
from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.checkup.site import Site
    from playbooks.outside.site import UrlSite
    from playbooks.runs.events import Event
    from playbooks.runs.options import CheckOptions
    from playbooks.runs.spec import Playbook
    from playbooks.runs.terms import Terms


class Required(StrEnum):
    """The view that a verdict must be of."""

    OUTSIDE = "outside"
    INSIDE = "inside"


@command_options(logs=True)
def check(
    engine: EngineFlags,
    output: Output,
    playbook: Annotated[
        str | None, typer.Argument(help="One that ships (playbook list), or a TOML file.")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="STEP.KEY=VALUE",
            help="A parameter of a step (playbook show), like soak.duration_s=2h; may be repeated.",
        ),
    ] = None,
    target: Target = "embedded",
    api: Api = "completions",
    token: Token = None,
    pid: Pid = None,
    replica: Annotated[
        list[str] | None,
        typer.Option(
            "--replica",
            metavar="URL",
            help="Another replica of the target's service, to be compared; repeatable.",
        ),
    ] = None,
    time_budget: Annotated[
        float | None, duration("--time-budget", "For all of it, like 90s or 20m.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for report.json, .md and .html (else your own).")
    ] = None,
    keep_going: Annotated[
        bool | None,
        typer.Option("--keep-going/--stop-on-fail", help="After a failed step (as it says)."),
    ] = None,
    require: Annotated[
        Required,
        typer.Option(
            help="outside: what a URL cannot tell is named and does not "
            "count; inside: it counts as missing."
        ),
    ] = Required.OUTSIDE,
    guard: Guards = None,
    max_share: MaxShare = None,
    disruptive: Annotated[
        bool, typer.Option("--disruptive", help="Storms are allowed at a URL, too.")
    ] = False,
    inject: Annotated[
        str | None, typer.Option(help="Put this fault into the engine first (--list-faults).")
    ] = None,
    list_faults: Annotated[
        bool, typer.Option(help="The faults and the causes they stand for.")
    ] = False,
    withhold: Annotated[
        list[str] | None, typer.Option(help="As if this metric could not be measured; repeatable.")
    ] = None,
    usual: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|none",
            help="Figures of healthy runs that this one is held against (else your own).",
        ),
    ] = None,
    accept: Annotated[
        bool, typer.Option(help="What this run measures is usual from now on.")
    ] = False,
) -> None:
    """Run a playbook: steps, gates and a diagnosis, with a report whatever happens.

    Exit code 0: well, 1: a gate failed or a cause was found, 3: evidence is missing, 4: the
    target is not there.
    """
    if list_faults:
        output.finish(_faults())
        return
    from playbooks.runs import spec
    from playbooks.runs.options import CheckOptions
    from playbooks.runs.overrides import with_parameters
    from playbooks.runs.terms import Terms

    if playbook is None:
        raise ConfigError(f"check: name a playbook ({', '.join(spec.names())})")
    book = with_parameters(spec.load(playbook), parameters or [])
    held = tuple(part.strip() for text in withhold or () for part in text.split(","))
    terms = Terms(tuple(guard or ()), max_share, disruptive, usual, accept)
    options = CheckOptions(
        time_budget,
        held,
        inject,
        folder,
        not output.no_log,
        keep_going,
        require.value,
        terms.history(),
    )
    where = _in_group(_where(target, api, token, pid, terms, engine), replica or [])
    run_and_exit(book, where, options, output)


def run_and_exit(
    playbook: Playbook, where: Site | UrlSite, options: CheckOptions, output: Output
) -> NoReturn:
    """Run it, with its progress on standard error, and leave with the verdict's exit code."""
    from playbooks.runs.runner import run_playbook

    ended = ended_by(SIGTERM, by=lambda _: KeyboardInterrupt("ended by SIGTERM"))
    with ended, StatusLine(output.quiet) as line:
        report = run_playbook(playbook, where, options, _step_listener(line))
    output.finish(report)
    output.note(f"report in {report['folder']}")
    interrupted = report["state"] == "interrupted"
    raise typer.Exit(Exit.INTERRUPTED if interrupted else OF_VERDICT[report["verdict"]])


def _where(
    target: str, api: str, token: str | None, pid: int | None, terms: Terms, engine: EngineFlags
) -> Site | UrlSite:
    if target == "embedded":
        terms.refuse_inside()
        if pid is not None:
            raise ConfigError("--pid: the embedded engine is this process; it is for --target URL")
        from engine.models import resolve
        from playbooks.checkup.site import Site

        config = engine.config(kv_memory="512M")
        resolve(config.model)  # a model that is not there is refused before anything runs
        return Site(config)
    from playbooks.outside.site import UrlSite

    engine.refuse_at(target)
    site = UrlSite(target, api, token, pid, terms.care())
    site.witness()  # refuses an address that cannot be, and a pid that is nobody's
    return site


def _in_group(where: Site | UrlSite, replicas: list[str]) -> Site | UrlSite:
    from playbooks.checkup.site import Site

    if not replicas:
        return where
    if isinstance(where, Site):
        raise ConfigError("--replica: the embedded engine has none; it is for --target URL")
    group = replace(where, replicas=tuple(replicas))
    bases = [one.spec.base for one in group.group]
    if len(set(bases)) < len(bases):
        raise ConfigError(f"--replica: {', '.join(bases)}: each address once")
    return group


def _faults() -> dict[str, object]:
    from playbooks.faults.faults import FAULTS

    rows = [{"fault": f.name, "cause": f.cause, "what": f.title} for f in FAULTS.values()]
    return {"schema": 1, "kind": "faults", "faults": rows}


# --- watching ----------------------------------------------------------------------------------


def _step_listener(line: StatusLine) -> Callable[[Event], None]:
    """Steps, gates that did not pass, and how far a step is."""
    from playbooks.runs import events

    place = ""

    def listener(event: Event) -> None:
        nonlocal place
        match event:
            case events.Announced(text=text):
                line.stay(text)
            case events.StepStarted(id=name, title=title, number=number, total=total):
                place = f"[{number}/{total}] {name}"
                line.stay(f"{place}: {title}")
            case events.StepProgress(done=done, total=total):
                line.pass_by(f"{place}: {done}" + (f" of {total}" if total else ""))
            case events.GateJudged(verdict=verdict, evidence=evidence) if verdict != "pass":
                text = said("{verdict}: {evidence}", verdict=verdict, evidence=evidence)
                line.stay(f"      {text}")
            case events.StepEnded(verdict=verdict, seconds=seconds, note=note):
                took = f"{seconds:.1f} s"
                text = said("{verdict} ({took})", verdict=verdict, took=took)
                if note:
                    text = said("{verdict} ({took}): {note}", verdict=verdict, took=took, note=note)
                line.stay(f"      {text}")

    return listener
