"""A forecast from what is asked to its report: the same for the command, a playbook's step and the
console; and from a report back to what was asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from checklists.tomlfile import checked
from engine.config import EngineConfig
from engine.errors import ConfigError
from playbooks.forecast.asked import own_fit, question_of, traffic_of
from playbooks.forecast.asked_traffic import ReadHistory, outlook_of
from playbooks.forecast.fit_file import Fit, load
from playbooks.forecast.history.read import read_history
from playbooks.forecast.outlook import Outlook
from playbooks.forecast.report import report_of
from playbooks.forecast.run import Question, run_forecast
from playbooks.forecast.score import kept_scores
from playbooks.reports.text import json_values
from playbooks.steps import Progress
from playbooks.steps.forecast import ForecastStep

FILES = ("history", "calendar", "fit")
"""What a step names files in."""


@dataclass(frozen=True)
class Forecast:
    """What is asked, its files read."""

    step: ForecastStep
    config: EngineConfig
    outlook: Outlook
    question: Question

    @classmethod
    def of(
        cls, step: ForecastStep, fit: Fit, config: EngineConfig, read: ReadHistory = read_history
    ) -> Forecast:
        """Raises ConfigError for files and settings that do not do."""
        outlook = outlook_of(traffic_of(step), read)
        return cls(step, config, outlook, question_of(step, outlook, fit, config))

    @classmethod
    def again(cls, report: dict[str, Any], read: ReadHistory = read_history) -> Forecast:
        """The one that a report is of. Raises ConfigError where it does not say enough, or its
        files have gone or changed."""
        asked = report.get("asked")
        if not isinstance(asked, dict):
            raise ConfigError("this forecast does not say what was asked: make it again")
        step = checked(ForecastStep, asked["step"])
        config = EngineConfig.from_dict(asked["settings"], "forecast")
        fit = own_fit(config) if step.fit is None else load(Path(step.fit))
        found = cls.of(step, fit, config, read)
        told, rates = [h["expected"] for h in report["traffic"]["hours"]], found.outlook.rates
        if len(told) != len(rates) or not np.allclose(told, rates, rtol=1e-6):
            raise ConfigError(f"{step.history}: has changed since: make the forecast again")
        return found

    def report(self, progress: Progress = lambda *_: None, beside: bool = False) -> dict[str, Any]:
        """Simulates it; `progress` counts plausible courses and searches for fleets. `beside`: an
        engine serves here, which must not notice."""
        found = run_forecast(self.question, progress, beside=beside)
        report = report_of(self.question, found, self.outlook, kept_scores())
        return report | {"asked": self._asked()}

    def _asked(self) -> dict[str, Any]:
        step = asdict(self.step)
        files = {key: str(Path(step[key]).resolve()) for key in FILES if step[key] is not None}
        told: dict[str, Any] = json_values(
            {"step": step | files, "settings": self.config.to_dict()}
        )
        return told
