"""`evewatch record`: what an engine shows, into a file, without a screen."""

from __future__ import annotations

import time
from pathlib import Path
from signal import SIGTERM
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import Seed, Token, command_options, duration
from console.commands.output import Output
from console.commands.settings import objectives
from console.commands.signals import ended_by
from console.commands.streams import show
from console.commands.up import LoadKind, traffic
from console.exits import Exit
from engine.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.recording.recorder import About, RecorderThread
    from engine.observing.objectives import Objective

SUFFIX = ".everec"
EMBEDDED, DEMO = "embedded", "demo"
MOST_HZ = 20.0
LEAST_SIZE = 64 << 10
LOOK_S = 0.5


@command_options(also=(SUFFIX,))
def record(
    engine: EngineFlags,
    output: Output,
    target: Annotated[
        str,
        typer.Argument(
            metavar="URL|embedded",
            help="Address of an engine, `embedded`, or `demo`: a scripted engine.",
        ),
    ],
    seconds: Annotated[
        float | None, duration("--duration", "90s, 10m or 2h; until interrupted by default.")
    ] = None,
    hz: Annotated[float, typer.Option(help="Looks a second.")] = 4.0,
    max_size: Annotated[
        str | None, typer.Option(help="Drop the oldest part beyond this, e.g. 64M.")
    ] = None,
    load: Annotated[
        LoadKind, typer.Option(help="Traffic for the embedded engine.")
    ] = LoadKind.CHAT,
    rate: Annotated[
        float | None, typer.Option(help="Requests/s of the load; follows the queue.")
    ] = None,
    seed: Seed = 0,
    token: Token = None,
) -> None:
    """Record an engine without a screen; interrupt it to end. `evewatch replay` plays it.

    --out FILE.everec names the recording; without it, it goes to the user's folder.
    """
    if not 0 < hz <= MOST_HZ:
        raise ConfigError(f"--hz: expected above 0 and up to {MOST_HZ:g}, got {hz:g}")
    limit = _limit(max_size)
    from console.recording.recorder import About

    file = output.take(SUFFIX)
    promised = objectives()
    recorded = _engine(target, token, engine, seed, promised.each if promised is not None else ())
    driver = traffic(recorded, load, None, rate, seed) if target == EMBEDDED else None
    target = getattr(recorded, "url", target)  # without what is secret in an address
    recorded.start()
    try:
        if driver is not None:
            driver.start()
        thread = _recorder(recorded, About(target, hz, recorded.config, promised), file, limit)
        interrupted = _run(thread, seconds, output)
    finally:
        if driver is not None:
            driver.stop()
        recorded.stop()
    if thread.error is not None:
        raise thread.error
    report = _report(thread, target)
    output.finish(report, show=lambda: _show(report))
    if interrupted and seconds is not None:
        raise typer.Exit(Exit.INTERRUPTED)


def _limit(text: str | None) -> int | None:
    from engine.config import parse_size

    size = None if text is None else parse_size(text)
    if size is not None and size < LEAST_SIZE:
        raise ConfigError(f"--max-size: expected at least {LEAST_SIZE >> 10}K, got {text}")
    return size


def _engine(
    target: str, token: str | None, flags: EngineFlags, seed: int, each: Sequence[Objective]
) -> Any:
    if target == DEMO:
        from engine.simulated.demo import DemoEngine

        return DemoEngine(seed=seed, objectives=each)
    if target == EMBEDDED:
        from engine.core import Engine

        return Engine(flags.config(kv_memory="256M"), objectives=each)
    from engine.remote import attach

    flags.refuse_at(target)
    remote = attach(target, token, objectives=each)
    source = remote.poll().source
    if source.state not in ("live", "stale"):
        raise EngineError(f"{remote.url}: {source.state.value.replace('_', ' ')}: {source.reason}")
    return remote


def _recorder(engine: Any, about: About, file: Path | None, limit: int | None) -> RecorderThread:
    from console.recording.recorder import (
        Recorder,
        RecorderThread,
        new_path,
        prune,
        recordings_folder,
    )

    if file is None:
        prune(recordings_folder())
        file = new_path(recordings_folder(), time.time())
    return RecorderThread(engine, Recorder(file, about, max_bytes=limit), about.hz)


def _run(thread: RecorderThread, seconds: float | None, output: Output) -> bool:
    """Record until the time is over, an interrupt or an error; whether it was an interrupt."""
    until = "" if seconds is not None else "; interrupt it to end"
    output.note(f"recording to {thread.recorder.path}{until}")
    began = time.monotonic()
    with ended_by(SIGTERM, by=lambda _: KeyboardInterrupt()):
        thread.start()
        try:
            with output.progress("seconds recorded") as progress:
                while not thread.wait(LOOK_S):
                    passed = time.monotonic() - began
                    progress(int(passed), int(seconds or 0))
                    if seconds is not None and passed >= seconds:
                        break
        except KeyboardInterrupt:
            return True
        finally:
            thread.stop()
    return False


def _report(thread: RecorderThread, target: str) -> dict[str, Any]:
    from console.recording.file import Recording

    recorder = thread.recorder
    recording = Recording(recorder.path)
    seconds = recording.ended - recording.began
    return {
        "schema": 1,
        "kind": "record",
        "target": target,
        "file": str(recorder.path),
        "bytes": recorder.bytes,
        "frames": recorder.frames,
        "seconds": seconds,
        "bytes_per_hour": recorder.bytes / seconds * 3600 if seconds else None,
    }


def _show(report: dict[str, Any]) -> None:
    from console.renderables import format as fmt

    show(
        f"{report['file']}: {report['frames']:,} frames, {fmt.duration(report['seconds'])}, "
        f"{fmt.size(report['bytes'])} ({fmt.size(report['bytes_per_hour'])} an hour)"
    )
