"""`evewatch serve`: the HTTP server without a screen."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from console.commands.alerting import Alerts, keeping
from console.commands.engine_flags import EngineFlags, note_backend
from console.commands.options import command_options, duration
from console.commands.output import QUIET, Output
from console.commands.settings import objectives
from console.exits import Exit

if TYPE_CHECKING:
    from console.server.settings import ServerSettings
    from playbooks.alerts.keeper import Message

Host = Annotated[str, typer.Option(help="Address to listen on; others than loopback need a key.")]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar="EVEWATCH_API_KEY",
        help="Bearer token that clients must send; better in the environment.",
    ),
]
Insecure = Annotated[bool, typer.Option(help="Serve a public address without a key.")]
AllowHost = Annotated[
    list[str] | None, typer.Option(help="Host header that a proxy sends; may be repeated.")
]
ServedName = Annotated[
    str | None, typer.Option("--served-model-name", help="The model's name to clients.")
]


@command_options()
def serve(
    engine: EngineFlags,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free one.")] = 8000,
    api_key: ApiKey = None,
    insecure: Insecure = False,
    allow_host: AllowHost = None,
    served_name: ServedName = None,
    max_queue: Annotated[int, typer.Option(help="Answers that may wait; more get 429.")] = 512,
    max_body: Annotated[str, typer.Option(help="Largest request, e.g. 1M.")] = "1M",
    max_prompt: Annotated[int | None, typer.Option(help="Longest prompt in tokens.")] = None,
    request_timeout: Annotated[
        float | None, duration("--request-timeout", "Longest life of a request.")
    ] = None,
    drain: Annotated[
        float, duration("--drain", "How long what runs may take to finish at the end.", True)
    ] = 30.0,
    alerts: Alerts = None,
    quiet: QUIET = False,
) -> None:
    """Serve the OpenAI API on the embedded engine until SIGTERM or Ctrl-C."""
    from console.server.settings import ServerSettings
    from engine.config import parse_size

    limits = ServerSettings(
        host=host,
        port=port,
        api_key=api_key,
        insecure=insecure,
        allowed_hosts=tuple(allow_host or ()),
        served_name=served_name,
        max_queue=max_queue,
        max_body=parse_size(max_body),
        max_prompt_tokens=max_prompt,
        request_s=request_timeout,
        drain_s=drain,
    )
    raise typer.Exit(_run(limits, engine, Output(quiet=quiet), alerts))


def _run(limits: ServerSettings, flags: EngineFlags, output: Output, alerts: Path | None) -> Exit:
    config, promised = flags.config(), objectives()
    from console.server.openfiles import within_open_files
    from console.server.run import address, bind
    from console.server.run import serve as run
    from engine.core import Engine

    _log_to_standard_error()
    listener = bind(limits)  # before the model loads: a taken port is known at once
    with listener, Engine(config, objectives=promised.each if promised else ()) as engine:
        note_backend(engine, output)
        name = limits.served_name or engine.loaded.spec.name
        output.note(f"{name} at {address(listener)}/v1; Ctrl-C drains")
        allowed = within_open_files(limits).max_connections
        if allowed < limits.max_connections:
            output.note(f"at most {allowed} connections: the limit of open files allows no more")

        def tell(message: Message) -> None:
            output.note(message.line)

        with keeping(alerts, lambda: {name: engine.snapshot()}, tell, promised):
            ended = run(engine, limits, listener)
    return Exit.INTERRUPTED if ended == signal.SIGINT else Exit.PASSED


def _log_to_standard_error() -> None:
    import logging

    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING
    )
