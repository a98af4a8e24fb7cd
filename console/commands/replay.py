"""`evewatch replay`: the console on a recording, or what is in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.appearance import Lang, Theme
from console.commands.options import command_options
from console.commands.output import Output
from engine.errors import ConfigError

if TYPE_CHECKING:
    from console.recording.replay import Replay

SCHEMA = 1


@command_options()
def replay(
    output: Output,
    file: Annotated[Path, typer.Argument(help="A recording.")],
    at: Annotated[
        str | None, typer.Option("--at", help="Begin at 12:30, 90 s or 50 % of the whole.")
    ] = None,
    speed: Annotated[float, typer.Option("--speed", help="0.1 to 60 times as fast.")] = 1.0,
    info: Annotated[
        bool, typer.Option("--info", help="Say what is in it instead of playing it.")
    ] = False,
    lang: Lang = None,
    theme: Theme = None,
) -> None:
    """Play a recording through the same panels; nothing in it can be changed."""
    from console.recording.replay import SPEEDS, Replay, parse_position

    if speed not in SPEEDS:
        raise ConfigError(f"--speed: expected one of {', '.join(f'{s:g}' for s in SPEEDS)}")
    player = Replay.open(file)
    damage = player.playback.damage
    if damage:
        output.note(f"{file}: {damage}; played up to there")
    if info or output.as_json or output.files:
        report = describe(player)
        output.finish(report, show=lambda: _show(report))
        return
    player.faster(SPEEDS.index(speed) - SPEEDS.index(1.0))
    if at is not None:
        player.seek(parse_position(at, player.playback))
    if not sys.stdout.isatty():
        raise ConfigError("replay: needs a terminal; use --info, or --json, in scripts")
    from console.app import build_app
    from console.commands.up import run_console

    run_console(build_app(player, clock=player.now))


def describe(player: Replay) -> dict[str, Any]:
    recording, damage = player.recording, player.recording.damage
    chunks = recording.chunks
    return {
        "schema": SCHEMA,
        "kind": "replay",
        "file": str(recording.path),
        "bytes": recording.path.stat().st_size,
        "target": recording.about.get("target"),
        "hz": recording.about.get("hz"),
        "began": recording.began,
        "seconds": player.length_s,
        "frames": sum(chunk.frames for chunk in chunks),
        "events": sum(chunk.events for chunk in chunks),
        "segments": len(recording.segments),
        "damage": None
        if damage is None
        else {"byte": damage.byte, "time": damage.time, "reason": damage.reason},
    }


def _show(report: dict[str, Any]) -> None:
    import time

    from console.renderables import format as fmt

    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report["began"]))
    sys.stdout.write(
        f"{report['file']}: {report['target']} from {began}, {fmt.duration(report['seconds'])}, "
        f"{report['frames']:,} frames, {report['events']:,} events, {fmt.size(report['bytes'])}\n"
    )
