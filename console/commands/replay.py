"""`evewatch replay`: the console on a recording, or what is in it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.appearance import Theme
from console.commands.options import command_options
from console.commands.output import Output
from console.commands.streams import show
from engine.errors import ConfigError

if TYPE_CHECKING:
    from console.recording.replay import Replay


@command_options()
def replay(
    output: Output,
    file: Annotated[Path, typer.Argument(help="A recording.")],
    at: Annotated[
        str | None, typer.Option(help="Begin at 12:30, 90 s or 50 % of the whole.")
    ] = None,
    speed: Annotated[float, typer.Option(help="0.1 to 60 times as fast.")] = 1.0,
    info: Annotated[bool, typer.Option(help="Say what is in it instead of playing it.")] = False,
    theme: Theme = None,
) -> None:
    """Play a recording through the same panels; nothing in it can be changed."""
    from console.recording.replay import SPEEDS, Replay, parse_position

    if speed not in SPEEDS:
        raise ConfigError(f"--speed: expected one of {', '.join(f'{s:g}' for s in SPEEDS)}")
    player = Replay.open(file)
    wanted = info or output.as_json or output.files
    report = describe(player) if wanted else {}
    if damage := player.playback.damage:
        output.note(f"{file}: {damage}; played up to there")
    if wanted:
        output.finish(report, show=lambda: _show(report))
        return
    player.faster(SPEEDS.index(speed) - SPEEDS.index(1.0))
    if at is not None:
        player.seek(parse_position(at, player.playback))
    if not sys.stdout.isatty():
        raise ConfigError("replay: needs a terminal; use --info, or --json, in scripts")
    from console.app import build_app
    from console.commands.run_console import run_console

    run_console(build_app(player, clock=player.now))


def describe(player: Replay) -> dict[str, Any]:
    """Unpacks all of it, and so finds all damage."""
    recording = player.recording
    lines = [m for i in range(len(recording.segments)) for m in recording.moments(i)]
    broken = recording.broken
    return {
        "schema": 1,
        "kind": "replay",
        "file": str(recording.path),
        "bytes": recording.path.stat().st_size,
        "target": recording.about.get("target"),
        "hz": recording.about.get("hz"),
        "began": recording.began,
        "seconds": player.length_s,
        "frames": len(lines),
        "events": sum(line.new_events for line in lines),
        "segments": len(recording.segments),
        "budgets": _budgets(player),
        "damage": None if broken is None else asdict(broken),
    }


def _budgets(player: Replay) -> list[dict[str, Any]]:
    """At its end, of the objectives that it was made under."""
    if player.budgets is None:
        return []
    player.budgets.read()
    return [budget.to_dict() for budget in player.budgets.at(player.recording.ended)]


def _show(report: dict[str, Any]) -> None:
    import time

    from console.renderables import format as fmt

    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report["began"]))
    show(
        f"{report['file']}: {report['target']} from {began}, {fmt.duration(report['seconds'])}, "
        f"{report['frames']:,} frames, {report['events']:,} events, {fmt.size(report['bytes'])}"
    )
