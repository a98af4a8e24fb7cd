"""`evewatch canary`: a candidate beside the baseline, given more of the traffic stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from console.commands.engine_flags import EngineFlags, parse_change
from console.commands.options import (
    Api,
    Guards,
    MaxContext,
    MaxShare,
    Timeout,
    Token,
    TokenIds,
    command_options,
)
from console.commands.output import Output
from console.commands.step_options import step_options
from console.commands.streams import StatusLine
from console.exits import OF_VERDICT, Exit
from engine.errors import ConfigError
from playbooks.steps.models import CanaryStep

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from playbooks.canary.events import Event
    from playbooks.load.endpoint import EndpointSpec
    from playbooks.outside.canary import CarefulSides
    from playbooks.runs.terms import Terms


@command_options(logs=True)
@step_options(CanaryStep, omit=("candidate", "candidate_url"), arrivals="poisson:2")
def canary(
    engine: EngineFlags,
    output: Output,
    step: CanaryStep,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="KEY=VALUE",
            help="What the candidate has otherwise, like kv_format=fp16; may be repeated. The "
            "other options are the baseline's.",
        ),
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="Settings of the baseline: a TOML file.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="URL of the endpoint that serves now.")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="URL of the endpoint that is tried out.")
    ] = None,
    timeout: Timeout = 120.0,
    api: Api = "completions",
    token_ids: TokenIds = False,
    token: Token = None,
    max_context: MaxContext = None,
    guard: Guards = None,
    max_share: MaxShare = None,
) -> None:
    """Move traffic to a candidate step by step, and back at once when it is worse.

    Without URLs both are engines in this process. Exit code 1: rolled back, 3: undecided.
    """
    from playbooks.canary.plan import CanaryPlan
    from playbooks.canary.step import plain_side, run_canary
    from playbooks.load.endpoint import EndpointSpec as Spec
    from playbooks.load.workload import ENDLESS_S, make_spec
    from playbooks.runs.terms import Terms

    plan = CanaryPlan.of(step)
    load = make_spec(
        step.arrivals, step.lengths, duration_s=ENDLESS_S, seed=step.seed, timeout_s=timeout
    )
    one: EngineConfig | EndpointSpec
    other: EngineConfig | EndpointSpec
    sides: CarefulSides | None = None
    if baseline or candidate:
        both_given(baseline, candidate)
        engine.refuse("sets an embedded engine, and both sides are endpoints", "model")
        refuse({"--change": changes, "--base": base},
               "sets an embedded engine, and both sides are endpoints")  # fmt: skip
        one, other = (Spec(url, api, engine.model, token_ids, token, max_context)
                      for url in (baseline, candidate) if url)  # fmt: skip
        sides = _careful(one, other, Terms(tuple(guard or ()), max_share))
    else:
        refuse({"--guard": guard, "--max-share": max_share},
               "is of engines that others use: for --baseline URL")  # fmt: skip
        one, other = _engines(engine, base, changes)
    with StatusLine(output.quiet) as line, sides.watched() if sides else nullcontext():

        def listener(event: Event) -> None:
            text, lasting = event_text(event)
            if text:
                (line.stay if lasting else line.pass_by)(text)

        if sides:
            line.stay(_announced(step))
        report = run_canary(
            plan, one, other, load, listener=listener, log=not output.no_log,
            make_side=sides.make if sides else plain_side,
        )  # fmt: skip
    output.finish(report, keep=True)
    raise typer.Exit(Exit.INTERRUPTED if report["interrupted"] else OF_VERDICT[report["verdict"]])


def _careful(one: EndpointSpec, other: EndpointSpec, terms: Terms) -> CarefulSides:
    from playbooks.canary.step import changes_between
    from playbooks.outside.canary import CarefulSides
    from playbooks.outside.site import UrlSite

    changes_between(one, other)  # refuses two that are the same
    return CarefulSides(UrlSite(one.url, one.api, one.key, care=terms.care()), other.url)


def _announced(step: CanaryStep) -> str:
    from playbooks.outside.announce import announced

    return f"canary: {announced([step]).text(None)}"


def _engines(
    engine: EngineFlags, base: Path | None, changes: list[str] | None
) -> tuple[EngineConfig, EngineConfig]:
    if not changes:
        raise ConfigError(
            "canary: nothing to try; give --change setting=value, or --baseline URL --candidate URL"
        )
    config = engine.config_over(base, kv_memory="256M", max_batch=32)  # of each of the two
    over = {name: value for text in changes for name, value in parse_change(text).items()}
    return config, config.with_(**over)


def refuse(given: Mapping[str, object], why: str) -> None:
    """Raises ConfigError for the first flag that was given."""
    for flag, value in given.items():
        if value:
            raise ConfigError(f"{flag}: {why}")


def both_given(baseline: str | None, candidate: str | None) -> None:
    if not baseline or not candidate:
        missing = "--candidate" if baseline else "--baseline"
        raise ConfigError(f"canary: {missing} URL is missing; endpoints come in pairs")


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
            failed = f", {event.failed:d} failed" if event.failed else ""
            return (
                f"{percent(event.share)} · {event.elapsed_s:.0f} of at least {event.least_s:.0f} s"
                f" · candidate {event.candidate:d} of {event.wanted:d}{failed}"
                f" · baseline {event.baseline:d} · {event.open:d} in flight",
                False,
            )
    return "", False
