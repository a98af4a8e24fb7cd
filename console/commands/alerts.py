"""`evewatch alerts`: test the ways out, show what fires, silence what is known."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.alerting import ring
from console.commands.options import command_options, duration
from console.commands.output import Output
from console.commands.settings import objectives
from console.exits import Exit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.alerts.silences import Silence

alerts_app = typer.Typer(
    help="Alerts: test the ways out, try rules on a recording, show what fires, silence what is "
    "known. `watch --alerts FILE` and `serve --alerts FILE` send them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
TRY_S = 30.0


@alerts_app.command("test")
@command_options()
def test(
    output: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rules and ways out.")],
) -> None:
    """Send one alert that says it is a test on every way. Exit code 1: one did not take it."""
    from playbooks.alerts.file import load
    from playbooks.alerts.ways import close_all, sample, way_out

    alerts = load(file, os.environ)
    if not alerts.ways:
        raise ConfigError(f"{file}: names no [[ways]]; without one nobody is told")
    ways = [way_out(way, ring, os.environ) for way in alerts.ways]
    for way in ways:
        way.put(sample(time.time()))
    left = close_all(ways, TRY_S)
    failed = [way.name for way, messages in zip(ways, left, strict=True) if messages]
    rules = f"{len(alerts.rules)} rules read"
    verdict = f"{rules}; not delivered: {', '.join(failed)}" if failed else f"{rules}; all took it"
    output.finish(_report(verdict, (), ways=[way.to_dict() for way in ways]))
    raise typer.Exit(Exit.GATE_FAILED if failed else Exit.PASSED)


@alerts_app.command("replay")
@command_options()
def replay(
    output: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Rules; its ways are not used.")],
    recording: Annotated[Path, typer.Argument(help="What `record`, `R` or `watch --record` made.")],
) -> None:
    """What the rules would have told on a recording, with the objectives it was made under."""
    from console.recording.file import Recording
    from console.recording.rehearsal import Rehearsal
    from playbooks.alerts.file import load

    rules, played = load(file, None), Recording(recording)
    rehearsal = Rehearsal(played, rules)
    messages = [message.to_dict() for message in rehearsal]
    output.finish({
        "schema": 1,
        "kind": "alerts_replay",
        "recording": str(recording),
        "began": played.began,
        "seconds": played.ended - played.began,
        "looks": rehearsal.looks,
        "rules": [rule.name for rule in rehearsal.rules.rules],
        "messages": messages,
        "firing": rehearsal.keeper.to_plain(),
    })  # fmt: skip


@alerts_app.command("show")
@command_options()
def show(output: Output) -> None:
    """What fires, what is silenced, how the ways out are, and what is left of the budgets."""
    from playbooks.alerts.silences import Silences
    from playbooks.alerts.watchkeeper import state_path

    now = time.time()
    silences = tuple(one for one in Silences().read() if one.until > now)
    try:
        state = json.loads(state_path().read_text("utf-8"))
        firing, ways = state["firing"], state["ways"]
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state["time"]))
        verdict = f"{len(firing)} firing, as of {at}" if firing else f"nothing fires, as of {at}"
    except FileNotFoundError:
        firing, ways, verdict = [], [], "nobody has kept watch here yet"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{state_path()}: cannot be read ({error}); remove it") from error
    output.finish(_report(verdict, silences, firing, ways, _budgets()))


@alerts_app.command("silence")
@command_options()
def silence(
    output: Output,
    rule: Annotated[str, typer.Argument(help="A rule's name, or a pattern: '*' is all.")],
    lasts: Annotated[float, duration("--for", "How long.")],
    reason: Annotated[str, typer.Option(help="Why; whoever looks later reads it.")],
    target: Annotated[str, typer.Option(help="An engine's name, or a pattern.")] = "*",
) -> None:
    """Tell nobody for a while. What still fires at its end is told then."""
    from playbooks.alerts.silences import Silence, Silences
    from playbooks.optlog import OptLog, Record

    if not reason.strip():
        raise ConfigError("--reason: say why, in a few words")
    now = time.time()
    one = Silence(rule, target, now + lasts, reason.strip())
    kept = Silences()
    kept.add(one, now)
    OptLog().append(Record(title=f"Alert silence: {rule}", why=one.reason, how=asdict(one)))
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.until))
    output.finish(_report(f"{rule} at {target} is silent until {until}", kept.read()))


def _budgets() -> list[dict[str, Any]]:
    """As they were kept last, of the objectives of evewatch.toml."""
    promised = objectives()
    if promised is None:
        return []
    from playbooks.objectives.book import Book

    return [
        {"engine": name} | budget.to_dict()
        for name, several in Book(promised).kept().items()
        for budget in several
    ]


def _report(
    verdict: str,
    silences: tuple[Silence, ...],
    firing: list[dict[str, Any]] | None = None,
    ways: list[dict[str, Any]] | None = None,
    budgets: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "alerts",
        "verdict": verdict,
        "firing": firing or [],
        "ways": ways or [],
        "silences": [asdict(one) for one in silences],
        "budgets": budgets or [],
    }
