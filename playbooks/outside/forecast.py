"""Does the coming traffic fit? Nothing is sent to the target: its fit was measured before."""

from __future__ import annotations

from pathlib import Path

from engine.errors import ConfigError
from playbooks.forecast.asked import at_url
from playbooks.forecast.fit_file import load
from playbooks.forecast.step import forecast_outcome
from playbooks.outside.site import UrlSite
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.steps.forecast import ForecastStep
from playbooks.steps.metrics import FORECAST


def run_forecast(site: UrlSite, params: ForecastStep, clock: StepClock) -> StepOutcome:
    """Raises ConfigError for a file that is none of a fit."""
    try:
        params = at_url(params, site.spec.shown)
    except ConfigError as error:
        return StepOutcome(dict.fromkeys(FORECAST), str(error), doubts=(str(error),))
    assert params.fit is not None, "at a URL it is a file"
    fit = load(Path(params.fit))
    return forecast_outcome(params, fit, fit.config, clock)
