"""A small engine and its traffic, for forecasts that take no time."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from engine.config import EngineConfig
from engine.scheduling.plan import ModelFacts
from engine.simulated.cost import kv_facts
from engine.simulated.fitted import CostCoefficients
from playbooks.forecast.bursts import GammaGaps
from playbooks.forecast.course import Scenario
from playbooks.forecast.fit_file import Fingerprint, Fit
from playbooks.forecast.sizes import PresetSizes
from playbooks.forecast.traffic import SlotTraffic
from playbooks.load.mix import parse_mix

MONDAY = datetime(2026, 12, 21, tzinfo=UTC)


def a_fit(pages: int = 400, drift: float = 0.0, **settings) -> Fit:
    """8 rows, 20 ms a step and 1 ms a row: about 5 requests/s of 40 tokens each."""
    config = EngineConfig(**{"max_batch": 8, "token_budget": 64} | settings)
    facts = ModelFacts("tiny", "none", "none", 1 << 40, 1000, kv_facts(64, 16, 100.0, 200.0, 8))
    cost = CostCoefficients(((0, 20e6), (64, 60e6)), row=1e6, context=1e3)
    named = Fingerprint("evewatch", "0", "tiny", config.kv_format, "none", "here")
    return Fit(named, asdict(config), facts, pages, 512, cost, drift=drift)


def a_scenario(
    replicas: int = 1, name: str = "as it is", fit: Fit | None = None, **more
) -> Scenario:
    fit = fit or a_fit()
    return Scenario(name, fit, more.pop("config", fit.config), replicas, **more)


def traffic(rates, slot_s=3600.0, seed=0, lengths="lognormal:40,40,0.5", cv=1.0) -> SlotTraffic:
    sizes = [PresetSizes(parse_mix(lengths))] * len(rates)
    return SlotTraffic(MONDAY, tuple(map(float, rates)), slot_s, GammaGaps(cv), sizes, seed)
