"""`evewatch load`: traffic against an engine, and what it measured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.engine_flags import EngineFlags, note_backend
from console.commands.options import (
    ARRIVALS,
    LENGTHS,
    SEED,
    Api,
    MaxContext,
    Pid,
    Timeout,
    Token,
    TokenIds,
    command_options,
    duration,
)
from console.commands.output import Output
from console.commands.streams import StatusLine
from console.exits import OF_VERDICT, Exit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.observing.host import Witness
    from playbooks.load.client import LoadProgress
    from playbooks.load.targets import Target
    from playbooks.load.workload import LoadSpec


@command_options()
def load(
    engine: EngineFlags,
    output: Output,
    target: Annotated[
        str, typer.Option(help="embedded, the URL of an endpoint, or null.")
    ] = "embedded",
    arrivals: Annotated[str | None, typer.Option(help=f"{ARRIVALS}  [default: poisson:1]")] = None,
    lengths: Annotated[str | None, typer.Option(help=f"{LENGTHS}  [default: chat*0.2]")] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Replay this file: Azure or BurstGPT CSV, Mooncake or Bailian JSON lines, "
            "ShareGPT JSON, or what --jsonl wrote."
        ),
    ] = None,
    time_scale: Annotated[
        float, typer.Option(help="The trace's times, times this; 0.1: 10 × as fast.")
    ] = 1.0,
    time_unit: Annotated[
        str | None, typer.Option(help="Of the trace's times: s, ms, us or ns; else judged.")
    ] = None,
    prompt_scale: Annotated[float, typer.Option(help="Prompt lengths, times this.")] = 1.0,
    output_scale: Annotated[float, typer.Option(help="Output lengths, times this.")] = 1.0,
    requests: Annotated[int | None, typer.Option(help="End after so many are sent.")] = None,
    lasting: Annotated[
        float | None,
        duration("--duration", "End after so long of sending (30s if there is no other end)."),
    ] = None,
    warm_up: Annotated[
        float | None,
        duration("--warm-up", "Left out at the beginning (a tenth, or a median request).", True),
    ] = None,
    timeout: Timeout = 600.0,
    slo: Annotated[str | None, typer.Option(help="Goodput: ttft=500,tpot=50,e2e=5s (ms).")] = None,
    shared_prefix: Annotated[int, typer.Option(help="First tokens that all prompts share.")] = 0,
    ignore_eos: Annotated[bool, typer.Option(help="Run outputs to their full length.")] = False,
    api: Api = "completions",
    token_ids: TokenIds = False,
    token: Token = None,
    pid: Pid = None,
    max_context: MaxContext = None,
    seed: Annotated[int | None, typer.Option(help=SEED)] = None,
    jsonl: Annotated[
        Path | None, typer.Option(help="Write a line of JSON per request here.")
    ] = None,
) -> None:
    """Send traffic to an engine and measure it. Exit code 1: requests failed, 3: inconclusive."""
    from playbooks.load.slo import Slo, parse_slo
    from playbooks.load.workload import make_spec

    embedded = target == "embedded"
    if pid is not None and target in ("embedded", "null"):
        raise ConfigError(f"--pid: {target} is this process; it is for --target URL")
    config = engine.config() if embedded else None
    spec = make_spec(
        arrivals,
        lengths,
        trace,
        time_scale=time_scale,
        time_unit=time_unit,
        prompt_scale=prompt_scale,
        output_scale=output_scale,
        count_tokens=_token_counter(config.model) if config is not None else None,
        requests=requests,
        duration_s=lasting,
        seed=seed,
        shared_prefix=shared_prefix,
        ignore_eos=ignore_eos,
        timeout_s=timeout,
        warm_up_s=warm_up,
        slo=parse_slo(slo) if slo is not None else Slo(),
    )
    for warning in spec.warnings:
        output.note(warning)
    if embedded:
        report = _on_engine(config, spec, jsonl, output)
    else:
        engine.refuse_at(target, "model")
        there = _remote(target, api, engine.model, token_ids, token, max_context)
        report = _run(there, spec, jsonl, output, _witness_there(target, pid))
    output.finish(report, keep=True)
    raise typer.Exit(exit_code(report))


def _remote(target: str, *spec: Any) -> Target:
    """What answers if not the embedded engine."""
    from playbooks.load.endpoint import Endpoint, EndpointSpec
    from playbooks.load.targets import NullTarget

    return NullTarget() if target == "null" else Endpoint(EndpointSpec(target, *spec))


def _witness_there(target: str, pid: int | None) -> Witness | None:
    """Of the target's process, if that is on this machine."""
    from engine.remote.address import parse
    from playbooks.measure.witnessed import witness_at

    return None if target == "null" else witness_at(parse(target).origin, pid)


def _on_engine(config: Any, spec: LoadSpec, jsonl: Path | None, output: Output) -> dict[str, Any]:
    from engine.core import Engine
    from playbooks.load.targets import EmbeddedTarget
    from playbooks.measure.trial import warm_up
    from playbooks.measure.witnessed import witness_of

    with Engine(config) as engine:
        note_backend(engine, output)
        warm_up(engine)
        engine.reset()
        return _run(EmbeddedTarget(engine), spec, jsonl, output, witness_of(engine))


def _run(
    target: Target, spec: LoadSpec, jsonl: Path | None, output: Output, witness: Witness | None
) -> dict[str, Any]:
    """`host` in the report is None where the target is not on this machine."""
    from playbooks.load.client import run_load
    from playbooks.load.record import RecordFile
    from playbooks.load.summary import summarize
    from playbooks.measure.witnessed import host_report

    with (
        RecordFile(jsonl) if jsonl is not None else nullcontext() as file,
        StatusLine(output.quiet) as line,
        witness or nullcontext(),
    ):
        show = (lambda seen: line.pass_by(progress_text(seen))) if line.live else None
        result = run_load(target, spec, show, file.write if file is not None else None)
    host = None if witness is None else host_report([witness.evidence])
    return summarize(result) | {"host": host}


def _token_counter(model: str) -> Callable[[str], int]:
    """With the model's own tokenizer, which is opened when a trace has texts."""

    @cache
    def tokenizer() -> Any:
        from engine.models import open_checkpoint, resolve

        return open_checkpoint(resolve(model)).tokenizer()

    return lambda text: len(tokenizer().encode(text))


def exit_code(report: dict[str, Any]) -> Exit:
    if report["interrupted"]:
        return Exit.INTERRUPTED
    only_unreachable = set(report["errors"]) == {"connect"}
    if only_unreachable and not report["requests"]["completed"]:
        return Exit.UNREACHABLE
    return OF_VERDICT[report["verdict"]]


def progress_text(progress: LoadProgress) -> str:
    """Rate, in flight, p99 so far."""
    from playbooks.load.summary import latency_block
    from playbooks.reports.document import duration as milliseconds

    total = f" of {progress.total:d}" if progress.total is not None else ""
    rate = progress.sent / progress.elapsed_s if progress.elapsed_s else 0.0
    ttft, e2e = latency_block(progress.ttft_ms), latency_block(progress.e2e_ms)
    parts = [
        f"{progress.elapsed_s:.0f} s",
        f"{progress.done:d}{total} done",
        f"{rate:.1f} requests/s",
        f"{progress.in_flight:d} in flight",
        f"TTFT p50 {milliseconds(ttft['p50'])} p99 {milliseconds(ttft['p99'])}",
        f"E2E p99 {milliseconds(e2e['p99'])}",
    ]
    return " · ".join([*parts, f"{progress.failed:d} failed"] if progress.failed else parts)
