"""`evewatch quality`: do a KV format or products of integers change what the model says?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NoReturn

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import Api, Target, Token, command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from console.exits import OF_VERDICT
from engine.errors import ConfigError
from playbooks.steps.models import QualityStep


@command_options(logs=True)
@step_options(QualityStep, omit=("size",))
def quality(
    engine: EngineFlags,
    output: Output,
    step: QualityStep,
    quick: Annotated[
        bool, typer.Option(help="A third of the cases; the same metrics and limits.")
    ] = False,
    target: Target = "embedded",
    api: Api = "completions",
    token: Token = None,
) -> None:
    """Hold the output of a KV format, and of products of integers, against fp16 and floats.

    Exit code 1: it fails, 3: inconclusive.

    With --target URL: its greedy answers, recorded (--record) or held against others (--against).
    """
    if target != "embedded":
        engine.refuse_at(target)
        _at_url(replace(step, size="quick" if quick else "full"), target, api, token, output)
    if step.record or step.against:
        raise ConfigError("--record and --against are of the answers of --target URL")
    config = engine.config()
    config.with_(kv_format=step.baseline, zero_point=False)  # refuses an unknown baseline
    from playbooks.optlog.automatic import of_quality
    from playbooks.quality.check import run_quality

    spec = replace(step, size="quick" if quick else "full")
    with output.progress("quality") as progress:
        report = run_quality(config, spec, progress)
    output.finish(report, log=lambda files: of_quality(report, files))
    raise typer.Exit(OF_VERDICT[report["verdict"]])


def _at_url(
    step: QualityStep, target: str, api: str, token: str | None, output: Output
) -> NoReturn:
    """The check of one step, without a playbook file."""
    from console.commands.check import run_and_exit
    from playbooks.outside.site import UrlSite
    from playbooks.runs.gates import Gate
    from playbooks.runs.options import CheckOptions
    from playbooks.runs.spec import Playbook, PlaybookStep

    gates = tuple(Gate(metric, "==", 0) for metric in ("mixed_answers", "failed_limits", "unclear"))
    one = PlaybookStep("quality", "quality", "what the target answers", step, gates)
    book = Playbook("quality", "Quality of a target's answers", (one,))
    site = UrlSite(target, api, token)
    site.witness()  # refuses an address that cannot be
    run_and_exit(book, site, CheckOptions(log=not output.no_log), output)
