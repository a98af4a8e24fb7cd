"""A canary of two live engines, each at its URL, with care for both."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import ConfigError
from engine.snapshot import Snapshot
from playbooks.canary.sides import EndpointSide
from playbooks.load.endpoint import EndpointSpec
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import canary_outcome
from playbooks.steps import models


def run_canary(site: UrlSite, params: models.CanaryStep, clock: StepClock) -> StepOutcome:
    if not params.candidate_url:
        raise ConfigError("canary: against a URL the candidate is a URL too: candidate_url")
    other = site.beside(params.candidate_url)
    sides: list[GuardedEndpoint] = []

    def make_side(name: str, spec: EndpointSpec) -> EndpointSide:
        where = site if spec == site.spec else other
        sides.append(GuardedEndpoint(where))

        async def scrape() -> Snapshot | None:
            return where.newest

        return EndpointSide(name, sides[-1], scrape)

    with site.watched(), other.watched():
        outcome = canary_outcome(site.spec, other.spec, params, clock, make_side=make_side)
    doubts = tuple(f"{one.spec.base}: {one.tripped}" for one in sides if one.tripped)
    return replace(outcome, metrics={**outcome.metrics, **site.facts()}, doubts=doubts)
