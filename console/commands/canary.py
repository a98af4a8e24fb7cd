"""`evewatch canary`: a candidate beside the baseline, given more of the traffic stage by stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from console.commands.common import Json, Out, Quiet, engine_options
from console.commands.compare import base_config, parse_change
from console.commands.load import KEY_VARIABLE
from console.commands.logged import NoLog
from console.commands.measured import CODES, Export, Seed, check_exports, finish
from console.exits import Exit
from engine.errors import ConfigError

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from playbooks.canary.events import Event
    from playbooks.load.endpoint import EndpointSpec

DEFAULTS: dict[str, Any] = {"kv_memory": "256M", "max_batch": 32}
"""Of each of the two engines."""
ENDLESS_S = 1e7
"""The traffic goes on until the canary ends it."""


@engine_options
def canary(
    flags: dict[str, Any],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="What the candidate has otherwise, like kv_format=fp16; may be repeated. The "
            "other options are the baseline's.",
        ),
    ] = None,
    base: Annotated[
        Path | None, typer.Option("--base", help="Settings of the baseline: a TOML file.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="URL of the endpoint that serves now.")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option("--candidate", help="URL of the endpoint that is tried out.")
    ] = None,
    stages: Annotated[
        str, typer.Option("--stages", help="Percent of the users on the candidate, rising.")
    ] = "1,10,50,100",
    time_scale: Annotated[
        float,
        typer.Option("--time-scale", help="All times, times this; 0.1 is a quick rehearsal."),
    ] = 1.0,
    least: Annotated[
        float, typer.Option("--least", help="Seconds that a stage takes at least.")
    ] = 600.0,
    hold: Annotated[
        float, typer.Option("--hold", help="Seconds that a stage may stay undecided.")
    ] = 7200.0,
    min_samples: Annotated[
        int,
        typer.Option("--min-samples", help="Answers of each side that a stage needs (P99: 299)."),
    ] = 300,
    metric: Annotated[
        str,
        typer.Option("--metric", help="Whose tail is compared: slowdown, e2e, ttft or tpot."),
    ] = "slowdown",
    tail_ratio: Annotated[
        float, typer.Option("--tail-ratio", help="Above this the candidate's tail is too high.")
    ] = 1.10,
    waive: Annotated[
        str, typer.Option("--waive", help="Do without: memory, quality, crosstalk.")
    ] = "",
    arrivals: Annotated[
        str,
        typer.Option(
            "--arrivals",
            help="poisson:RATE, gamma:RATE,CV, constant:RATE, ramp:FROM-TO/SECONDS or "
            "closed:USERS[,THINK_S].",
        ),
    ] = "poisson:2",
    lengths: Annotated[
        str,
        typer.Option(
            "--lengths",
            help="chat, code, lognormal:PROMPT,OUTPUT[,SIGMA], uniform:A-B,C-D, "
            "fixed:PROMPT,OUTPUT or a trace file; each may end in *FACTOR.",
        ),
    ] = "chat*0.05",
    users: Annotated[
        int, typer.Option("--users", help="Who send the requests; each stays on one side.")
    ] = 10_000,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds until a request has failed.")
    ] = 120.0,
    api: Annotated[
        str, typer.Option("--api", help="Of the endpoints: completions or chat.")
    ] = "completions",
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Send endpoints token ids instead of text.")
    ] = False,
    max_context: Annotated[
        int | None, typer.Option("--max-context", help="Cut requests to endpoints to this.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
    out: Out = None,
    export: Export = None,
    quiet: Quiet = False,
    no_log: NoLog = False,
) -> None:
    """Move traffic to a candidate step by step, and back at once when it is worse.

    Without URLs both are engines in this process. Exit code 1: rolled back, 3: undecided. The
    bearer token of endpoints comes from EVEWATCH_API_KEY.
    """
    check_exports(export)
    from playbooks.canary.plan import CanaryPlan, parse_stages
    from playbooks.canary.step import run_canary
    from playbooks.load.workload import make_spec

    plan = CanaryPlan(
        stages=parse_stages(stages),
        least_s=least,
        hold_s=hold,
        min_samples=min_samples,
        time_scale=time_scale,
        metric=metric,
        tail_ratio=tail_ratio,
        users=users,
        waive=tuple(name.strip() for name in waive.split(",") if name.strip()),
        seed=seed,
    )
    load = make_spec(arrivals, lengths, duration_s=ENDLESS_S, seed=seed, timeout_s=timeout)
    one: EngineConfig | EndpointSpec
    other: EngineConfig | EndpointSpec
    if baseline or candidate:
        urls = baseline, candidate
        one, other = _endpoints(urls, flags, changes, base, api, token_ids, max_context)
    else:
        one, other = _engines(base, flags, changes)
    with _progress(quiet) as listener:
        report = run_canary(plan, one, other, load, listener=listener, log=not no_log)
    finish(report, as_json, out, export, quiet)
    raise typer.Exit(Exit.INTERRUPTED if report["interrupted"] else CODES[report["verdict"]])


def _engines(
    base: Path | None, flags: dict[str, Any], changes: list[str] | None
) -> tuple[EngineConfig, EngineConfig]:
    if not changes:
        raise ConfigError(
            "canary: nothing to try; give --set setting=value, or --baseline URL --candidate URL"
        )
    config = base_config(base, flags, DEFAULTS)
    over = {name: value for text in changes for name, value in parse_change(text).items()}
    return config, config.with_(**over)


def _endpoints(
    urls: tuple[str | None, str | None],
    flags: dict[str, Any],
    changes: list[str] | None,
    base: Path | None,
    api: str,
    token_ids: bool,
    limit: int | None,
) -> tuple[EndpointSpec, EndpointSpec]:
    from playbooks.load.endpoint import EndpointSpec

    if not urls[0] or not urls[1]:
        missing = "--candidate" if urls[0] else "--baseline"
        raise ConfigError(f"canary: {missing} URL is missing; endpoints come in pairs")
    given = [f"--{n.replace('_', '-')}" for n, v in flags.items() if v is not None and n != "model"]
    given += ["--set"] if changes else []
    given += ["--base"] if base else []
    if given:
        raise ConfigError(f"{given[0]}: sets an embedded engine, and both sides are endpoints")
    key = os.environ.get(KEY_VARIABLE)
    one, other = (EndpointSpec(url, api, flags["model"], token_ids, key, limit)
                  for url in urls if url)  # fmt: skip
    return one, other


# --- what is shown while it runs ------------------------------------------------------------


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Event], None]]:
    """A line for each decision on standard error, and one that is written over between them."""
    if quiet:
        yield lambda event: None
        return
    live = sys.stderr.isatty()

    def show(event: Event) -> None:
        text, lasting = event_text(event)
        if not text or not (live or lasting):
            return
        clear = "\r\x1b[K" if live else ""
        sys.stderr.write(f"{clear}{text}" + ("\n" if lasting else ""))
        sys.stderr.flush()

    try:
        yield show
    finally:
        if live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def event_text(event: Event) -> tuple[str, bool]:
    """The line for an event, and whether it stays. Empty for one that is not worth a line."""
    from playbooks.canary.events import Beat, Decided, Phase
    from playbooks.canary.plan import percent

    match event:
        case Phase():
            return f"canary: {event.name}: {event.text}", True
        case Decided(decision):
            return f"canary: {decision['title']}: {decision['why']}", True
        case Beat():
            failed = f", {event.failed} failed" if event.failed else ""
            return (
                f"{percent(event.share)}  {event.elapsed_s:.0f} of at least {event.least_s:.0f} s"
                f"  candidate {event.candidate} of {event.wanted}{failed}  "
                f"baseline {event.baseline}  {event.open} in flight",
                False,
            )
    return "", False
