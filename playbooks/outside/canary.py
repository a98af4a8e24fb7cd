"""A canary of two live engines, each at its URL, with care for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from engine.errors import ConfigError
from engine.snapshot import Snapshot
from playbooks.canary.router import BASELINE
from playbooks.canary.sides import EndpointSide
from playbooks.load.endpoint import EndpointSpec
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import canary_outcome
from playbooks.steps import models


class CarefulSides:
    """Makes the sides of a canary: guarded, in the check's journal, with what its watch sees."""

    def __init__(self, site: UrlSite, candidate: str) -> None:
        self.site, self.other = site, site.beside(candidate)
        self._made: list[GuardedEndpoint] = []

    @contextmanager
    def watched(self) -> Iterator[Self]:
        with self.site.watched(), self.other.watched():
            yield self

    def make(self, name: str, spec: EndpointSpec) -> EndpointSide:
        where = self.site if name == BASELINE else self.other
        self._made.append(GuardedEndpoint(where, spec=spec))

        async def scrape() -> Snapshot | None:
            return where.newest

        return EndpointSide(name, self._made[-1], scrape)

    @property
    def tripped(self) -> tuple[str, ...]:
        """What ended it before its time, in words."""
        return tuple(f"{one.spec.base}: {one.tripped}" for one in self._made if one.tripped)


def run_canary(site: UrlSite, params: models.CanaryStep, clock: StepClock) -> StepOutcome:
    if not params.candidate_url:
        raise ConfigError("canary: against a URL the candidate is a URL too: candidate_url")
    with CarefulSides(site, params.candidate_url).watched() as sides:
        ends = sides.site.spec, sides.other.spec
        outcome = canary_outcome(*ends, params, clock, make_side=sides.make)
    return replace(outcome, metrics={**outcome.metrics, **site.facts()}, doubts=sides.tripped)
