"""The types of steps: a model, its metrics, and the functions that run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from playbooks.steps import forecast, metrics, models
from playbooks.steps.fields import resolve

EMBEDDED, URL = "playbooks.runs.procedures", "playbooks.outside"


@dataclass(frozen=True)
class StepType:
    name: str
    about: str
    model: type[Any]
    metrics: Mapping[str, str]
    facts: tuple[str, ...] = ()
    """Of the metrics, those that a diagnosis needs from this step."""
    on_url: bool = False
    """It runs against an engine at a URL too; others need the inside of the engine."""
    needs: str | None = None
    """A parameter without which there is nothing to do: the step is skipped."""

    def procedure(self, at_url: bool = False) -> Callable[..., Any]:
        """`run(site, parameters, clock) -> StepOutcome`; torch is loaded here and not before."""
        room = f"{URL}.{self.name}" if at_url else EMBEDDED
        return resolve(f"{room}:run_{self.name}")


STEP_TYPES: dict[str, StepType] = {
    step.name: step
    for step in (
        StepType("environment", "versions, driver, compiler and memory of this machine",
                 models.EnvironmentStep, metrics.ENVIRONMENT, ("broken_versions",), on_url=True),
        StepType("profile", "where the time of requests and of steps goes",
                 models.ProfileStep, metrics.PROFILE, on_url=True),
        StepType("load", "traffic, with everything watched that a diagnosis asks for",
                 models.LoadStep, metrics.LOAD, metrics.LOAD_FACTS, on_url=True),
        StepType("sweep", "throughput and tail latency over the batch size, the knee and the cap",
                 models.SweepStep, metrics.SWEEP, on_url=True),
        StepType("compare", "the same requests through engines that differ by one setting",
                 models.CompareStep, metrics.COMPARE),
        StepType("quality", "do the KV format or products of integers change what the model "
                 "says",
                 models.QualityStep, metrics.QUALITY,
                 ("mean_kld", "suspects", "clipped", "mixed_answers"), on_url=True),
        StepType("soak", "many requests, cancellations, timeouts, refusals: what is left, what "
                 "grows", models.SoakStep, metrics.SOAK, ("growth",), on_url=True),
        StepType("faults", "put known causes into the engine and see that each is found",
                 models.FaultsStep, metrics.FAULTS),
        StepType("canary", "a candidate beside the baseline, with more of the traffic stage by "
                 "stage", models.CanaryStep, metrics.CANARY, on_url=True),
        StepType("forecast", "plausible courses of the coming traffic through the engine's own "
                 "scheduler, in virtual time", forecast.ForecastStep, metrics.FORECAST, on_url=True,
                 needs="history"),
        StepType("checklist", "the automatic items of a checklist, answered under a small load",
                 models.ChecklistStep, metrics.CHECKLIST, on_url=True),
    )
}  # fmt: skip
