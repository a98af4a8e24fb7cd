"""`evewatch watch`: the console on external engines, or one look at them."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.alerting import Alerts, as_of_now, keeping
from console.commands.appearance import Theme
from console.commands.options import Readonly, TokenVariable, command_options, duration
from console.commands.output import Output
from console.commands.settings import alerts_file, objectives
from console.commands.streams import say
from console.exits import Exit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from console.app import Console
    from engine.remote.fleet.fleet import Fleet
    from engine.snapshot import Snapshot
    from playbooks.objectives.file import Objectives


@command_options()
def watch(
    output: Output,
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL",
            help="Engines: vLLM, SGLang, llama.cpp, LMDeploy, TGI, TensorRT-LLM, Triton, EveWatch.",
        ),
    ] = None,
    fleet: Annotated[
        Path | None, typer.Option(help="TOML file with the targets; see docs/watching.md.")
    ] = None,
    once: Annotated[
        bool, typer.Option(help="Look once and report; with --interval twice, for rates.")
    ] = False,
    interval: Annotated[float | None, duration("--interval", "Between two looks (1s).")] = None,
    engine: Annotated[
        str | None, typer.Option(help="The engine expected there; another one is an error.")
    ] = None,
    token_env: TokenVariable = None,
    record: Annotated[
        Path | None, typer.Option(help="Write a recording; of several, one file each.")
    ] = None,
    prometheus_port: Annotated[
        int | None, typer.Option(help="Export the merged numbers on this loopback port.")
    ] = None,
    alerts: Alerts = None,
    readonly: Readonly = False,
    theme: Theme = None,
) -> None:
    """Watch external engines with the same panels; none of them is changed."""
    promised = objectives(fleet)
    watched = _fleet(urls or [], fleet, interval, engine, token_env, promised)
    if once:
        if record is not None or prometheus_port is not None or alerts is not None:
            raise ConfigError(
                "--record, --prometheus-port and --alerts need more than one look; drop --once"
            )
        report = look(watched, interval)
        output.finish(report)
        live = all(target["state"] == "live" for target in report["targets"])
        raise typer.Exit(Exit.PASSED if live else Exit.UNREACHABLE)
    if output.as_json or output.files:
        raise ConfigError("--json and --out need --once")
    headless, alerts = not sys.stdout.isatty(), alerts or alerts_file()
    if headless and record is None and prometheus_port is None and alerts is None:
        raise ConfigError(
            "watch: needs a terminal; use --once, --alerts, --record or --prometheus-port"
        )
    with ExitStack() as stack:
        if prometheus_port is not None:
            from engine.remote.fleet.export import serve

            stack.callback(serve(watched, prometheus_port))
        if record is not None:
            stack.enter_context(_recording(watched, record, promised))
        keeper = stack.enter_context(
            keeping(
                alerts,
                lambda: _snapshots(watched),
                (lambda message: output.note(message.line)) if headless else (lambda _: None),
                promised,
                watched.services,
            )
        )
        if headless:
            _stay(watched, output)
        else:
            from console.commands.run_console import run_console

            run_console(build_watch(watched, readonly=readonly, keeper=keeper))


def _snapshots(fleet: Fleet) -> dict[str, Snapshot]:
    """Of every target, those that have not answered yet, too."""
    return {engine.name: as_of_now(engine) for engine in fleet.engines.values()}


def _fleet(
    urls: list[str],
    file: Path | None,
    interval: float | None,
    engine: str | None,
    token_env: str | None,
    promised: Objectives | None,
) -> Fleet:
    from engine.remote.engine import INTERVAL_S
    from engine.remote.fleet.fleet import FleetTarget, attach_all, read_fleet

    targets = [FleetTarget(url, engine=engine, token_env=token_env) for url in urls]
    if file is not None:
        listed, own = read_fleet(file)
        targets, interval = [*targets, *listed], own if interval is None else interval
    if not targets:
        raise ConfigError("watch: name at least one URL, or a --fleet file")
    return attach_all(
        targets,
        INTERVAL_S if interval is None else interval,
        objectives=promised.each if promised is not None else (),
    )


def build_watch(fleet: Fleet, **options: Any) -> Console:
    """The console on external engines: one is shown at once, of several the fleet first. For the
    options see build_app."""
    from console.app import build_app
    from engine.remote.fleet.fleet_engine import FleetEngine

    engines = list(fleet.engines.values())
    return build_app(engines[0] if len(engines) == 1 else FleetEngine(fleet), **options)


def look(fleet: Fleet, interval: float | None) -> dict[str, Any]:
    """One scrape of every target, or two that are `interval` seconds apart."""
    import time

    fleet.poll()
    if interval is not None:
        time.sleep(interval)
        fleet.poll()
    try:
        return {
            "schema": 1,
            "kind": "watch",
            "targets": [_target(engine) for engine in fleet.engines.values()],
            "groups": [_group(group) for group in fleet.groups()],
        }
    finally:
        fleet.stop()


def _target(engine: Any) -> dict[str, Any]:
    snapshot = engine.snapshot()
    source = snapshot.source
    return {
        "url": engine.url,
        "name": engine.name,
        "engine": engine.engine,
        "state": source.state.value,
        "reason": source.reason,
        "age_s": source.age_s,
        "cannot_know": list(engine.cannot_know),
        "snapshot": json.loads(snapshot.to_json()) if snapshot.seq else None,
    }


def _group(group: Any) -> dict[str, Any]:
    return {
        "name": group.name,
        "replicas": list(group.snapshots),
        "live": group.live,
        "verdict": group.verdict,
        "odd": [
            {"replica": odd.replica, "metric": odd.metric, "value": odd.value, "unit": odd.unit,
             "others": [odd.low, odd.high]}
            for odd in group.odd
        ],
        "snapshot": json.loads(group.merged.to_json()) if group.live else None,
    }  # fmt: skip


def _recording(fleet: Fleet, path: Path, promised: Objectives | None) -> ExitStack:
    """Recorders of all targets, running; closing the stack ends them."""
    from console.recording.recorder import About, Recorder, RecorderThread

    def end(recorder: RecorderThread) -> None:
        recorder.stop()
        if recorder.error is not None:
            say(f"evewatch: the recording broke off: {recorder.error}")

    with ExitStack() as stack:
        for engine in fleet.engines.values():
            hz = min(4.0, 1.0 / engine.interval_s)
            file = path if len(fleet.engines) == 1 else _beside(path, engine.name)
            recorder = RecorderThread(
                engine, Recorder(file, About(engine.url, hz, objectives=promised)), hz
            )
            recorder.start()
            stack.callback(end, recorder)
        return stack.pop_all()


def _beside(path: Path, name: str) -> Path:
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    return path.with_name(f"{path.stem}-{plain}{path.suffix}")


def _stay(fleet: Fleet, output: Output) -> None:
    """Without a screen, until interrupted; what happens is told on standard error."""
    import time

    told = dict.fromkeys(fleet.engines, 0)

    def tell() -> None:
        for engine in fleet.engines.values():
            told[engine.name], events = engine.happened(told[engine.name])
            for event in events:
                output.note(f"{engine.name}: {event.text}")

    fleet.start()
    try:
        while True:
            tell()
            time.sleep(0.25)
    finally:
        fleet.stop()
        tell()
