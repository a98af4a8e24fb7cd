"""`evewatch forecast`: what the coming days will be like, by the real scheduler in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.forecast_run import forecast_run
from console.commands.forecast_score import forecast_score
from console.commands.options import Api, Target, Token, command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from engine.errors import ConfigError
from playbooks.steps.models import FitWork

OF_A_TARGET = ("max_batch", "token_budget", "page_tokens", "max_model_len")
"""Settings that are told of an engine at a URL."""

forecast_app = typer.Typer(
    help="What the coming days will be like: traffic, engines, and what to set.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


forecast_app.command("run")(forecast_run)
forecast_app.command("score")(forecast_score)


@forecast_app.command("fit")
@command_options(logs=True)
@step_options(FitWork)
def forecast_fit(
    engine: EngineFlags,
    output: Output,
    step: FitWork,
    target: Target = "embedded",
    api: Api = "completions",
    token: Token = None,
    pages: Annotated[
        int | None, typer.Option(min=1, help="Blocks of a target's KV cache, if it does not tell.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Keep the fit here, not in its place for this engine.")
    ] = None,
) -> None:
    """Measure what a step of an engine costs, and keep it for forecasts.

    With --target URL: from outside, by a ladder of loads; --max-batch and --set token_budget=N,
    page_tokens and max_model_len say of it what its metrics page does not.
    """
    from playbooks.forecast.fit_record import of_fit

    if target != "embedded":
        engine.refuse_at(target, *OF_A_TARGET)
    elif pages is not None:
        raise ConfigError("--pages: is of --target URL; the embedded engine has --kv-memory")
    with output.progress("loads") as progress:
        if target == "embedded":
            from playbooks.forecast.fit import run_fit
            from playbooks.forecast.fit_file import own_path

            config = engine.config()
            fit, report = run_fit(config, step, progress, say=output.note)
            path = own_path(config)
        else:
            from playbooks.forecast.fit_file import url_path
            from playbooks.forecast.fit_url import Asked, run_fit_url
            from playbooks.outside.site import UrlSite

            site, asked = UrlSite(target, api, token), Asked(pages, **engine.given)
            fit, report = run_fit_url(site, asked, step, progress, say=output.note)
            path = url_path(site.spec.shown)
    kept = save or path
    fit.save(kept)
    output.note(f"the fit is kept in {kept}")
    output.finish(
        report, keep=True, log=lambda files: of_fit(report, (str(kept.resolve()), *files))
    )
