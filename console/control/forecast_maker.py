"""A forecast that is asked for on the console: which engine it is of, what measures that first, and
where it is kept. It loads what simulating needs, and so is imported by who does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.recording.past import read_past
from console.recording.recorder import SUFFIX
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.observing.watchable import Reach
from engine.remote.address import shown
from playbooks.forecast.answers import HOLDS_ON
from playbooks.forecast.asked import at_url, own_fit, traffic_of
from playbooks.forecast.asked_traffic import outlook_of
from playbooks.forecast.fit_file import Fit, load
from playbooks.forecast.forecast import Forecast
from playbooks.forecast.record import of_forecast
from playbooks.optlog import OptLog
from playbooks.reports import results
from playbooks.runs.gates import Gate
from playbooks.runs.spec import Playbook, PlaybookStep
from playbooks.steps.forecast import ForecastStep


class NotMeasured(ConfigError):
    """The engine of this process has no fit that does."""


def forecast_of(step: ForecastStep, config: EngineConfig, reach: Reach | None) -> Forecast:
    """Of the watched engine: the one at `reach`, else one with these settings; of another where
    the step names its fit. Raises NotMeasured, ConfigError."""
    if reach is not None:
        step = at_url(step, shown(reach.url))
    if step.fit is None:
        return Forecast.of(step, _own_fit(step, config), config, read_past)
    fit = load(Path(step.fit))
    return Forecast.of(step, fit, fit.config, read_past)


def _own_fit(step: ForecastStep, config: EngineConfig) -> Fit:
    try:
        return own_fit(config)
    except ConfigError as error:
        outlook_of(traffic_of(step), read_past)  # what is wrong with its files comes first
        if Path(step.history or "").suffix == SUFFIX:  # playbooks read no recordings
            raise
        raise NotMeasured(str(error)) from None


def measured_first(step: ForecastStep) -> Playbook:
    """The same forecast as a playbook of one step: that measures an engine which has no fit."""
    gates = Gate("saturated_share", "==", 0), Gate("holds_share", ">=", HOLDS_ON)
    one = PlaybookStep("forecast", "forecast", "its steps, then the coming days", step, gates)
    return Playbook("forecast", "A forecast of an engine that is measured first", (one,))


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
