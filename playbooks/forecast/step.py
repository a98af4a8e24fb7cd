"""A forecast as a step of a playbook: does the coming traffic fit?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.errors import ConfigError
from playbooks.checkup.site import Site
from playbooks.forecast.asked import own_fit
from playbooks.forecast.fit_file import Fit, load, own_path
from playbooks.forecast.forecast import Forecast
from playbooks.reports import results
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.steps.forecast import ForecastStep
from playbooks.steps.models import FitWork

FIT_S = 120.0
"""An engine without a fit is measured for so long, or a third of the step's time."""


def embedded_fit(site: Site, params: ForecastStep, clock: StepClock) -> Fit:
    """The file's, else the one that is kept of this engine, else a new one, which is kept."""
    if params.fit is not None:
        return load(Path(params.fit))
    try:
        return own_fit(site.config)
    except ConfigError:
        from playbooks.forecast.fit import run_fit

        seconds = FIT_S if clock.left_s is None else min(FIT_S, clock.left_s / 3)
        fit, _ = run_fit(site.config, FitWork(duration_s=seconds), clock.check, site.loaded)
        fit.save(own_path(site.config))
        return fit


def forecast_outcome(
    params: ForecastStep, fit: Fit, config: EngineConfig, clock: StepClock
) -> StepOutcome:
    """Its report is kept as that of the command is. Raises ConfigError for files and settings that
    do not do."""
    report = Forecast.of(params, fit, config).report(clock.check)
    note = report["sentences"][0]
    try:
        results.save(report)
    except ConfigError as error:  # it is in the playbook's report all the same
        note += f"; not kept for later: {error}"
    return StepOutcome(step_metrics(report), note, report)


def step_metrics(report: dict[str, Any]) -> dict[str, Any]:
    first, days = report["scenarios"][0], report["days"]
    totals, smallest = first["totals"], report["smallest"]
    needed = smallest["whole"] if smallest is not None else None
    return {
        "holds_share": first["holds_on"] / days,
        "saturated_share": max((s["days"] for s in first["saturations"]), default=0) / days,
        "good_share": totals["good"]["value"],
        "good_share_low": totals["good"]["low"],
        "budget_spent": totals["budget_spent"]["value"],
        **{f"{name}_p99_ms": totals[f"{name}_ms"]["p99"]["value"]
           for name in ("ttft", "tpot", "e2e")},
        "kv_usage": totals["kv"]["value"],
        "replicas_needed": needed,
        "replicas_missing": None if needed is None else max(needed - first["replicas"], 0),
    }  # fmt: skip
