"""`evewatch forecast run`: the coming days through the engine's own scheduler, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from console.commands.engine_flags import EngineFlags
from console.commands.options import Target, command_options
from console.commands.output import Output
from console.commands.step_options import step_options
from console.exits import Exit
from playbooks.steps.forecast import ForecastStep

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from playbooks.forecast.fit_file import Fit

OF_VERDICT = {"holds": Exit.PASSED, "fails": Exit.GATE_FAILED, "uncertain": Exit.INCONCLUSIVE}


@command_options(logs=True, also=(".svg",))
@step_options(ForecastStep)
def forecast_run(
    engine: EngineFlags,
    output: Output,
    step: ForecastStep,
    target: Target = "embedded",
    rates: Annotated[
        Path | None,
        typer.Option(help="Write what a replica is to expect here, for --set rate_schedule=FILE."),
    ] = None,
) -> None:
    """Does the coming traffic fit? Nothing is sent to any engine; it needs `forecast fit`.

    Exit code 1: the objective is missed, 3: on some plausible days only.
    """
    from console.recording.past import read_past
    from engine.remote.address import shown
    from playbooks.forecast.asked import at_url
    from playbooks.forecast.forecast import Forecast
    from playbooks.forecast.rates_file import write_rates
    from playbooks.forecast.record import of_forecast

    if target != "embedded":
        step = at_url(step, shown(target))
    asked = Forecast.of(step, *_engine(engine, step.fit), read_past)
    if rates is not None:
        write_rates(asked.outlook, asked.question.scenarios[0].replicas, rates)
    with output.progress("courses") as progress:
        report = asked.report(progress)
    output.finish(report, keep=True, log=lambda files: of_forecast(report, files))
    if report["verdict"] != "holds":
        raise typer.Exit(OF_VERDICT[report["verdict"]])


def _engine(engine: EngineFlags, file: str | None) -> tuple[Fit, EngineConfig]:
    """The fit and the settings of what there is."""
    from playbooks.forecast.asked import own_fit
    from playbooks.forecast.fit_file import load

    if file is None:
        config = engine.config()
        return own_fit(config), config
    fit = load(Path(file))
    return fit, fit.config.with_(**engine.given)
