"""A canary of two live engines, each at its URL."""

from __future__ import annotations

from engine.errors import ConfigError
from playbooks.load.endpoint import EndpointSpec
from playbooks.outside.site import UrlSite
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import canary_outcome
from playbooks.steps import models


def run_canary(site: UrlSite, params: models.CanaryStep, clock: StepClock) -> StepOutcome:
    if not params.candidate_url:
        raise ConfigError("canary: against a URL the candidate is a URL too: candidate_url")
    other = EndpointSpec(params.candidate_url, api=site.api, key=site.key)
    return canary_outcome(site.spec, other, params, clock)
