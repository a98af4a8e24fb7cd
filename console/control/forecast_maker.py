"""A forecast that is asked for on the console: which engine it is of, and where it is kept. It
loads what simulating needs, and so is imported by who does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.recording.past import read_past
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.observing.watchable import Reach
from engine.remote.address import shown
from playbooks.forecast.asked import at_url, own_fit
from playbooks.forecast.fit_file import load
from playbooks.forecast.forecast import Forecast
from playbooks.forecast.record import of_forecast
from playbooks.optlog import OptLog
from playbooks.reports import results
from playbooks.steps.forecast import ForecastStep


def forecast_of(step: ForecastStep, config: EngineConfig, reach: Reach | None) -> Forecast:
    """Of the watched engine: the one at `reach`, else one with these settings; of another where
    the step names its fit. Raises ConfigError."""
    if reach is not None:
        step = at_url(step, shown(reach.url))
    if step.fit is None:
        return Forecast.of(step, own_fit(config), config, read_past)
    fit = load(Path(step.fit))
    return Forecast.of(step, fit, fit.config, read_past)


def keep(report: dict[str, Any], log: OptLog, say: Callable[[str, str], object]) -> None:
    """Among the results and in the log. What stops that is said, and costs no forecast."""
    paths: tuple[str, ...] = ()
    try:
        paths = (str(results.save(report)),)
    except ConfigError as error:
        say(f"not kept for later: {error}", "error")
    try:
        for record in of_forecast(report, paths):
            log.append(record)
    except ConfigError as error:
        say(f"not in the log: {error}", "error")
