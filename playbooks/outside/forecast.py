"""Does the coming traffic fit? Nothing is sent to the target: its fit was measured before."""

from __future__ import annotations

from pathlib import Path

from playbooks.forecast.asked import at_url
from playbooks.forecast.fit_file import load
from playbooks.forecast.step import forecast_outcome
from playbooks.outside.site import UrlSite
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.steps.forecast import ForecastStep


def run_forecast(site: UrlSite, params: ForecastStep, clock: StepClock) -> StepOutcome:
    """Raises ConfigError where there is no fit of it."""
    params = at_url(params, site.spec.shown)
    assert params.fit is not None, "at a URL it is a file"
    fit = load(Path(params.fit))
    return forecast_outcome(params, fit, fit.config, clock)
