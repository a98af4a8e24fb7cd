"""`evewatch up`: the console on an engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from console.commands.alerting import Alerts, alone, keeping
from console.commands.appearance import Theme
from console.commands.engine_flags import EngineFlags
from console.commands.external import (
    DataParallel,
    External,
    Extra,
    PipelineParallel,
    TensorParallel,
)
from console.commands.options import Readonly, Seed, command_options
from console.commands.run_console import run_console
from console.commands.serve import AllowHost, ApiKey, Host, Insecure
from console.commands.settings import objectives
from engine.errors import ConfigError

CPU_LOAD_SCALE = 0.15
"""Lengths of real chats times this are what two cores serve at a pace worth watching."""


class LoadKind(StrEnum):
    CHAT = "chat"
    CODE = "code"
    NONE = "none"


@command_options()
def up(
    engine: EngineFlags,
    load: Annotated[
        LoadKind | None,
        typer.Option(help="Traffic that keeps the engine busy; chat, none with --port."),
    ] = None,
    load_scale: Annotated[
        float | None, typer.Option(help="Lengths of the load, times this (0.15 on a CPU).")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests/s of the load; follows the queue by default.")
    ] = None,
    seed: Seed = 0,
    demo: Annotated[bool, typer.Option(help="A scripted engine: no model, no torch.")] = False,
    readonly: Readonly = False,
    port: Annotated[
        int | None, typer.Option(help="Serve the OpenAI API too; 0 takes any free port.")
    ] = None,
    host: Host = "127.0.0.1",
    api_key: ApiKey = None,
    insecure: Insecure = False,
    allow_host: AllowHost = None,
    engine_name: Annotated[
        str | None,
        typer.Option("--engine", help="vllm: start vLLM's own server and watch it."),
    ] = None,
    tensor_parallel: TensorParallel = None,
    pipeline_parallel: PipelineParallel = None,
    data_parallel: DataParallel = None,
    extra: Extra = None,
    alerts: Alerts = None,
    theme: Theme = None,
) -> None:
    """Open the console on the embedded engine, or on vLLM's."""
    external = External(engine_name, tensor_parallel, pipeline_parallel, data_parallel, extra)
    if external.wanted:
        external.refuse(load=load, rate=rate, load_scale=load_scale, port=port, demo=demo or None)
        external.run(engine, readonly, alerts)
        return
    if rate is not None and not rate > 0:
        raise ConfigError(f"--rate: expected requests per second above 0, got {rate:g}")
    if load_scale is not None and not load_scale > 0:
        raise ConfigError(f"--load-scale: expected a factor above 0, got {load_scale:g}")
    if not sys.stdout.isatty():
        raise ConfigError("up: needs a terminal; use `evewatch bench` or `generate` in scripts")
    if demo and port is not None:
        raise ConfigError("--port: the scripted engine of --demo serves nobody; leave one out")
    promised = objectives()
    each = promised.each if promised is not None else ()
    if demo:
        from console.app import build_app
        from engine.simulated.demo import DemoEngine

        scripted = DemoEngine(seed=seed, objectives=each)
        with keeping(alerts, alone(scripted), objectives=promised) as keeper:
            run_console(build_app(scripted, readonly=readonly, keeper=keeper))
        return
    config = engine.config(kv_memory="256M")
    from console.app import build_app
    from engine.core import Engine

    embedded = Engine(config, objectives=each)
    kind = load or (LoadKind.CHAT if port is None else LoadKind.NONE)
    busy = traffic(embedded, kind, load_scale, rate, seed)
    limits: dict[str, Any] = {"host": host, "api_key": api_key, "insecure": insecure}
    limits |= {"allowed_hosts": tuple(allow_host or ())}
    with (
        serving(embedded, port, limits),
        keeping(alerts, alone(embedded), objectives=promised) as keeper,
    ):
        run_console(build_app(embedded, readonly=readonly, load=busy, keeper=keeper))


@contextmanager
def serving(engine: Any, port: int | None, limits: dict[str, Any]) -> Iterator[None]:
    """The HTTP server beside the console. It answers 503 while the model loads, and its open
    requests end with the engine."""
    if port is None:
        yield
        return
    from console.server import ServerSettings, serve_in_thread

    with serve_in_thread(engine, ServerSettings(port=port, drain_s=1.0, **limits)):
        yield


def traffic(engine: Any, kind: LoadKind, scale: float | None, rate: float | None, seed: int) -> Any:
    """What keeps the engine busy, or None."""
    if kind is LoadKind.NONE:
        return None
    import torch

    from playbooks.load.embedded import BackgroundLoad
    from playbooks.load.mix import PRESETS

    factor = scale or (1.0 if torch.cuda.is_available() else CPU_LOAD_SCALE)
    return BackgroundLoad(engine, PRESETS[kind.value].scaled(factor), rate, seed)
