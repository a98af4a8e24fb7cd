"""The knee from outside: closed loops of more and more users."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.errors import EngineError
from engine.observing.host import HostEvidence
from playbooks.load import client
from playbooks.load.arrivals import Closed
from playbooks.load.prompts import derived_seed, fresh_seed
from playbooks.load.summary import CACHED_SHARE, summarize
from playbooks.load.workload import LoadSpec
from playbooks.measure.witnessed import less_disturbed, most_lost
from playbooks.measure.work import even_mix
from playbooks.outside.care import GuardTripped
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.statistics.knee import CAP_SHARE, judge_knee
from playbooks.steps import models


@dataclass
class Rung:
    """Closed loops of so many users."""

    users: int
    rates: list[float] = field(default_factory=list)
    """Output tokens/s of each repeat."""
    lost: float = 0.0
    """Of its machine at worst, if that is this one."""
    cached: float = 0.0
    """Of a run's prompts, what the target says its prefix cache had, at most."""
    late: bool = False
    """The load generator was the limit."""

    def take(self, one: Loop) -> None:
        summary, tokens = one.summary, one.summary["tokens"]
        self.rates.append(summary["throughput"]["output_tok_s"])
        self.lost = max(self.lost, most_lost(one.hosts))
        self.cached = max(self.cached, (tokens["prompt_cached"] or 0) / max(tokens["prompt"], 1))
        self.late = self.late or summary["generator_bound"]

    def to_dict(self) -> dict[str, Any]:
        return {"users": self.users, "output_tok_s": float(np.mean(self.rates)),
                "repeats": self.rates, "lost": self.lost}  # fmt: skip


@dataclass(frozen=True)
class Loop:
    """One closed loop."""

    summary: dict[str, Any]
    hosts: Sequence[HostEvidence] = ()


def run_sweep(site: UrlSite, params: models.SweepStep, clock: StepClock) -> StepOutcome:
    """Closed loops of 1, 2, 4 … users. What batch the engine makes of them is its own affair; where
    it tells its cap, more users than that only wait and say nothing of a batch.

    No two runs send the same prompts, and where the target says that its prefix cache had them
    all the same, or the generator was late, there is no knee: such points measure these.
    """
    with site.watched():
        seen = site.watch.look().batch
        rungs = _climb(site, params, clock)
    cap = seen.cap_max or seen.cap
    counted = [rung for rung in rungs if cap is None or rung.users <= cap]
    found, note = _knee(counted)
    recommended = max(1, int(CAP_SHARE * found)) if found is not None else None
    over = cap / recommended if cap is not None and recommended is not None else None
    metrics = {
        "knee": found,
        "recommended_cap": recommended,
        "cap_over_recommended": over,
        "peak_tok_s": max(float(np.mean(rung.rates)) for rung in rungs),
    }
    if len(counted) < len(rungs):
        note = "; ".join((note, f"users beyond its cap of {cap} are left out"))
    report = {"points": [rung.to_dict() for rung in rungs], "knee": found, "cap": cap,
              "prompt_cached": max(rung.cached for rung in rungs)}  # fmt: skip
    blind = frozenset({"cap_over_recommended"}) if cap is None else frozenset[str]()
    return StepOutcome(metrics, note, report, not_told=blind)


def _climb(site: UrlSite, params: models.SweepStep, clock: StepClock) -> list[Rung]:
    """All rungs once before any runs twice."""
    base = fresh_seed() if params.seed is None else params.seed
    rungs, total = [Rung(n) for n in params.batches], len(params.batches) * params.repeats
    for repeat in range(params.repeats):
        for at, rung in enumerate(rungs, 1):
            rung.take(_measured(site, params, rung.users, repeat, base))
            clock.check(repeat * len(rungs) + at, total)
    return rungs


def _measured(site: UrlSite, params: models.SweepStep, users: int, repeat: int, base: int) -> Loop:
    """Once more, with other prompts, where the machine took too much from it."""
    tries = itertools.count()

    def measure() -> Loop:
        seed = derived_seed(base, users, repeat, next(tries))
        return _loop(site, params, users, repeat, seed)

    return less_disturbed(measure, lambda one: one.hosts)


def _knee(rungs: Sequence[Rung]) -> tuple[int | None, str]:
    """And it in words, or why there is none."""
    cached = max((rung.cached for rung in rungs), default=0.0)
    if cached > CACHED_SHARE:
        return None, f"no knee: the target's prefix cache had up to {cached:.0%} of a run's prompts"
    if any(rung.late for rung in rungs):
        return None, "no knee: the load generator was the limit"
    found = judge_knee([rung.users for rung in rungs], [rung.rates for rung in rungs],
                       [rung.lost for rung in rungs])  # fmt: skip
    return found.knee, found.reason if found.knee is None else found.text


def _loop(
    site: UrlSite, params: models.SweepStep, users: int, repeat: int, prompt_seed: int
) -> Loop:
    """Raises EngineError when a request fails: such a point measures nothing."""
    count = max(params.least_requests, params.requests_per_user * users)
    spec = LoadSpec(
        Closed(users), even_mix(params.lengths, params.least_requests), requests=count,
        seed=(params.seed or 0) + repeat, prompt_seed=prompt_seed,
    )  # fmt: skip
    endpoint, witness = GuardedEndpoint(site), site.witness()
    with witness or nullcontext():
        result = client.run_load(endpoint, spec)
    if endpoint.tripped:
        raise GuardTripped(endpoint.tripped)
    if result.interrupted:
        raise KeyboardInterrupt
    summary = summarize(result)
    kinds = Counter(r.error for r in result.records if r.failed)
    if kinds:
        why = ", ".join(map(str, kinds))
        raise EngineError(f"{kinds.total()} of {count} requests of {users} users failed: {why}")
    if not summary["requests"]["completed"]:
        raise EngineError(f"none of {count} requests of {users} users was answered with a text")
    return Loop(summary, () if witness is None else (witness.evidence,))
