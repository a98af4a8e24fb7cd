"""`evewatch load`: traffic against an engine, and what it measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.common import (
    Json,
    Out,
    Quiet,
    emit,
    engine_options,
    note_backend,
    settings,
)
from console.exits import Exit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from playbooks.load.client import Progress
    from playbooks.load.targets import Target
    from playbooks.load.workload import LoadSpec

CODES = {
    "pass": Exit.PASSED,
    "fail": Exit.GATE_FAILED,
    "inconclusive": Exit.INCONCLUSIVE,
}
STYLES = {"pass": "green", "fail": "red", "inconclusive": "magenta"}
KEY_VARIABLE = "EVEWATCH_API_KEY"
WARM_UP = (32, 4)
"""Prompt and output tokens of what the embedded engine serves before the load."""


@engine_options
def load(
    flags: dict[str, Any],
    target: Annotated[
        str, typer.Option("--target", help="embedded, the URL of an endpoint, or null.")
    ] = "embedded",
    arrivals: Annotated[
        str | None,
        typer.Option(
            "--arrivals",
            help="poisson:RATE, gamma:RATE,CV, constant:RATE, ramp:FROM-TO/SECONDS or "
            "closed:USERS[,THINK_S].  [default: poisson:1]",
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            help="chat, code, lognormal:PROMPT,OUTPUT[,SIGMA], uniform:A-B,C-D, "
            "fixed:PROMPT,OUTPUT or a trace file; each may end in *FACTOR.  [default: chat*0.2]",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            help="Replay this file: Azure or BurstGPT CSV, Mooncake JSON lines, ShareGPT JSON, "
            "or what --jsonl wrote.",
        ),
    ] = None,
    time_scale: Annotated[
        float,
        typer.Option("--time-scale", help="The trace's times, times this; 0.1: 10 × as fast."),
    ] = 1.0,
    prompt_scale: Annotated[
        float, typer.Option("--prompt-scale", help="Prompt lengths, times this.")
    ] = 1.0,
    output_scale: Annotated[
        float, typer.Option("--output-scale", help="Output lengths, times this.")
    ] = 1.0,
    requests: Annotated[
        int | None, typer.Option("--requests", help="End after so many are sent.")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option("--duration", help="End after so many seconds of sending (30 if no end)."),
    ] = None,
    warm_up: Annotated[
        float | None,
        typer.Option("--warm-up", help="Seconds left out (a tenth, or a median request)."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds until a request has failed.")
    ] = 600.0,
    slo: Annotated[
        str | None, typer.Option("--slo", help="Goodput: ttft=500,tpot=50,e2e=5s (ms).")
    ] = None,
    shared_prefix: Annotated[
        int, typer.Option("--shared-prefix", help="First tokens that all prompts share.")
    ] = 0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Run outputs to their full length.")
    ] = False,
    api: Annotated[
        str, typer.Option("--api", help="Of an endpoint: completions or chat.")
    ] = "completions",
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Send an endpoint token ids instead of text.")
    ] = False,
    max_context: Annotated[
        int | None, typer.Option("--max-context", help="Cut requests to an endpoint to this.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of times, lengths and prompts.")] = 0,
    jsonl: Annotated[
        Path | None, typer.Option("--jsonl", help="Write a line of JSON per request here.")
    ] = None,
    as_json: Json = False,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """Send traffic to an engine and measure it. Exit code 1: requests failed, 3: inconclusive.

    The bearer token of an endpoint comes from EVEWATCH_API_KEY.
    """
    from playbooks.load.slo import Slo, parse_slo
    from playbooks.load.workload import make_spec

    embedded = target == "embedded"
    config = settings({}, **flags) if embedded else None
    spec = make_spec(
        arrivals,
        lengths,
        trace,
        time_scale=time_scale,
        prompt_scale=prompt_scale,
        output_scale=output_scale,
        count_tokens=_token_counter(config.model) if config is not None else None,
        requests=requests,
        duration_s=duration,
        seed=seed,
        shared_prefix=shared_prefix,
        ignore_eos=ignore_eos,
        timeout_s=timeout,
        warm_up_s=warm_up,
        slo=parse_slo(slo) if slo is not None else Slo(),
    )
    for warning in spec.warnings if not quiet else ():
        typer.echo(f"evewatch: {warning}", err=True)
    if embedded:
        report = _on_engine(config, spec, jsonl, quiet)
    else:
        report = _run(_remote(target, flags, api, token_ids, max_context), spec, jsonl, quiet)
    emit(report, as_json, out, load_table)
    raise typer.Exit(exit_code(report))


def _remote(
    target: str, flags: dict[str, Any], api: str, token_ids: bool, limit: int | None
) -> Target:
    """What answers if not the embedded engine."""
    from playbooks.load.endpoint import Endpoint, EndpointSpec
    from playbooks.load.targets import NullTarget

    given = [name for name, value in flags.items() if value is not None and name != "model"]
    if given:
        option = given[0].replace("_", "-")
        raise ConfigError(f"--{option}: sets the embedded engine, and the target is {target}")
    if target == "null":
        return NullTarget()
    key = os.environ.get(KEY_VARIABLE)
    return Endpoint(EndpointSpec(target, api, flags["model"], token_ids, key, limit))


def _on_engine(config: Any, spec: LoadSpec, jsonl: Path | None, quiet: bool) -> dict[str, Any]:
    from engine.core import Engine, completion
    from engine.request import SamplingParams
    from playbooks.load.targets import EmbeddedTarget

    with Engine(config) as engine:
        note_backend(engine, quiet)
        prompt, output = WARM_UP
        completion(engine.submit([0] * prompt, SamplingParams(output, ignore_eos=True)))
        engine.reset()
        return _run(EmbeddedTarget(engine), spec, jsonl, quiet)


def _run(target: Target, spec: LoadSpec, jsonl: Path | None, quiet: bool) -> dict[str, Any]:
    from playbooks.load.client import run_load
    from playbooks.load.record import RecordFile
    from playbooks.load.summary import summarize

    with (
        RecordFile(jsonl) if jsonl is not None else nullcontext() as file,
        _progress_line(quiet) as show,
    ):
        result = run_load(target, spec, show, file.write if file is not None else None)
    return summarize(result)


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
    return CODES[report["verdict"]]


# --- what is shown -----------------------------------------------------------------------


@contextmanager
def _progress_line(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """One line on standard error that is written over; silence when it is no terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return

    def show(progress: Progress) -> None:
        sys.stderr.write("\r\x1b[K" + progress_text(progress))
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def progress_text(progress: Progress) -> str:
    """Rate, in flight, p99 so far."""
    from console.commands.report import milliseconds
    from playbooks.load.summary import latency_block

    total = f" of {progress.total}" if progress.total is not None else ""
    rate = progress.sent / progress.elapsed_s if progress.elapsed_s else 0.0
    ttft, e2e = latency_block(progress.ttft_ms), latency_block(progress.e2e_ms)
    parts = [
        f"{progress.elapsed_s:.0f} s",
        f"{progress.done}{total} done",
        f"{rate:.1f} requests/s",
        f"{progress.in_flight} in flight",
        f"TTFT p50 {milliseconds(ttft['p50'])} p99 {milliseconds(ttft['p99'])}",
        f"E2E p99 {milliseconds(e2e['p99'])}",
    ]
    return "  ".join([*parts, f"{progress.failed} failed"] if progress.failed else parts)


def load_table(report: dict[str, Any]) -> None:
    """The whole report for people."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for line in _head(report):
        console.print(line, markup=False)
    console.print(_latency_table(report))
    for line in _tail(report):
        console.print(line, markup=False)
    for warning in report["warnings"]:
        console.print(f"note         {warning}", markup=False)
    style = STYLES[report["verdict"]]
    console.print(f"verdict      [{style}]{report['verdict']}[/{style}]")
    for reason in report["reasons"]:
        console.print(f"             {reason}", markup=False)


def _head(report: dict[str, Any]) -> Iterator[str]:
    target, load_, n = report["target"], report["load"], report["requests"]
    name = target.get("url") or target["kind"]
    model = f", {target['model']}" if target.get("model") else ""
    yield f"{name}{model}: {load_['arrivals']}, lengths {load_['lengths']}, seed {load_['seed']}"
    yield (
        f"{n['sent']} sent, {n['completed']} completed, {n['failed']} failed"
        + (f", {n['interrupted']} interrupted" if n["interrupted"] else "")
        + f"; {n['measured']} measured over {_window(report)}"
    )


def _window(report: dict[str, Any]) -> str:
    window = report["window"]
    span = f"{window['end_s'] - window['begin_s']:.1f} s"
    return f"{span} after {window['begin_s']:.1f} s of warm-up" if window["steady"] else span


def _latency_table(report: dict[str, Any]) -> Any:
    from rich.table import Table

    from console.commands.report import milliseconds

    table = Table("latency", "p50", "p90", "p99", "mean", "n", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {name.removesuffix("_ms").upper(): block for name, block in report["latency"].items()}
    for name, block in {**rows, "send delay": report["send_delay_ms"]}.items():
        if block["n"]:
            cells = [milliseconds(block[k]) for k in ("p50", "p90", "p99", "mean")]
            table.add_row(name, *cells, str(block["n"]))
    return table


def _tail(report: dict[str, Any]) -> Iterator[str]:
    t, tokens, offered = report["throughput"], report["tokens"], report["offered"]["requests_s"]
    yield (
        f"throughput   {t['output_tok_s']:.1f} output tok/s, {t['total_tok_s']:.1f} total tok/s, "
        f"{t['requests_s']:.2f} requests/s" + (f" of {offered:.2f} offered" if offered else "")
    )
    flight = report["in_flight"]
    if flight["max"] is not None:
        yield f"in flight    {flight['mean']:.1f} on average, {flight['max']} at most"
    yield (
        f"tokens       {tokens['prompt']:,} prompt, {tokens['output']:,} output; "
        f"longest context {tokens['longest_context'] or '–'}"
    )
    if report["goodput"]:
        good = report["goodput"]
        share = "–" if good["share"] is None else f"{good['share']:.1%}"
        limits = ", ".join(f"{k.removesuffix('_ms')} {v:g} ms" for k, v in good["slo"].items())
        yield f"goodput      {good['requests_s']:.2f} requests/s, {share} within {limits}"
    yield "finish       " + _counts(report["finish_reasons"])
    for kind, count in report["errors"].items():
        yield f"failed       {count} × {kind}: {report['error_examples'][kind]}"
    for trace in report["traces"]:
        yield f"trace        {trace['file']} ({trace['format']}): {_trace_counts(trace)}"


def _trace_counts(trace: dict[str, Any]) -> str:
    names = ("rows", "used", "malformed", "failed", "out_of_order", "same_time")
    text = _counts({name.replace("_", " "): trace[name] for name in names if trace[name]})
    return f"{text}; first problem: {trace['first_problem']}" if trace["first_problem"] else text


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "–"
