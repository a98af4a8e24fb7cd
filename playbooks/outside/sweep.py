"""The knee from outside: closed loops of more and more users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine.errors import EngineError
from playbooks.load import client
from playbooks.load.arrivals import Closed
from playbooks.load.mix import parse_mix
from playbooks.load.prompts import derived_seed, fresh_seed
from playbooks.load.summary import CACHED_SHARE, summarize
from playbooks.load.workload import LoadSpec
from playbooks.outside.care import GuardTripped
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.statistics.knee import CAP_SHARE, TAIL_SLOPE, knee, segmented_fit
from playbooks.steps import models


def run_sweep(site: UrlSite, params: models.SweepStep, clock: StepClock) -> StepOutcome:
    """Closed loops of 1, 2, 4 … users. What batch the engine makes of them is its own affair.

    No two runs send the same prompts, and where the target says that its prefix cache had them
    all the same, or the generator was late, there is no knee: such points measure these.
    """
    base = fresh_seed() if params.seed is None else params.seed
    points: list[dict[str, Any]] = []
    cached, total = 0.0, len(params.batches) * params.repeats
    late = False
    for n in params.batches:
        rates = []
        for repeat in range(params.repeats):
            summary = _rung(site, params, n, repeat, derived_seed(base, n, repeat))
            rates.append(summary["throughput"]["output_tok_s"])
            tokens = summary["tokens"]
            late = late or summary["generator_bound"]
            cached = max(cached, (tokens["prompt_cached"] or 0) / max(tokens["prompt"], 1))
            clock.check(len(points) * params.repeats + len(rates), total)
        points.append({"users": n, "output_tok_s": sum(rates) / len(rates), "repeats": rates})
    rates = [max(point["output_tok_s"], 1e-9) for point in points]
    flattered = cached > CACHED_SHARE
    agreed = None if flattered or late else _agreed_knee(params.batches, rates)
    metrics = {
        "knee": agreed,
        "recommended_cap": max(1, int(CAP_SHARE * agreed)) if agreed is not None else None,
        "cap_over_recommended": None,  # the cap is the engine's own
        "peak_tok_s": max(rates),
    }
    note = f"knee {agreed}" if agreed else "no knee that both rules agree on"
    if late:
        note = "no knee: the load generator was the limit"
    if flattered:
        note = f"no knee: the target's prefix cache had up to {cached:.0%} of a run's prompts"
    report = {"points": points, "knee": agreed, "prompt_cached": cached}
    return StepOutcome(metrics, note, report, not_told=frozenset({"cap_over_recommended"}))


def _rung(
    site: UrlSite, params: models.SweepStep, users: int, repeat: int, prompt_seed: int
) -> dict[str, Any]:
    """The summary of one closed loop. Raises EngineError when a request fails: such a point
    measures nothing."""
    count = max(params.least_requests, params.requests_per_user * users)
    spec = LoadSpec(
        Closed(users), parse_mix(params.lengths), requests=count,
        seed=(params.seed or 0) + repeat, prompt_seed=prompt_seed,
    )  # fmt: skip
    endpoint = GuardedEndpoint(site)
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
    return summary


def _agreed_knee(users: Sequence[int], rates: Sequence[float]) -> int | None:
    """Where doubling stops to pay, if the curve has bent by then."""
    found, bend = knee(users, rates), segmented_fit(users, rates)
    return found if bend is not None and bend.ratio <= TAIL_SLOPE else None
