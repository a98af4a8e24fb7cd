"""Steps against an engine at a URL: what its API and its metrics allow, and no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, EngineError
from engine.snapshot import Snapshot
from playbooks.checkup.site import UrlSite
from playbooks.checkup.watched_load import lateness
from playbooks.diagnosis import from_snapshots
from playbooks.load import client
from playbooks.load.arrivals import Closed
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.mix import parse_mix
from playbooks.load.prompts import derived_seed, fresh_seed
from playbooks.load.slo import Slo, parse_slo
from playbooks.load.summary import CACHED_SHARE, summarize
from playbooks.load.workload import LoadSpec, make_spec
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import canary_outcome, checklist_outcome, summary_metrics
from playbooks.statistics.knee import CAP_SHARE, TAIL_SLOPE, knee, segmented_fit
from playbooks.steps import models

POLL_S = 0.5
LOOK_S = 5.0


@dataclass
class Watch:
    """Snapshots of a target while something goes on there."""

    series: list[Snapshot] = field(default_factory=list)

    @contextmanager
    def on(self, site: UrlSite) -> Iterator[None]:
        """Polls on a thread. A target without metrics gives Snapshots that say so."""
        from engine.remote import attach

        engine, ended = attach(site.spec.base, site.key), threading.Event()

        def poll() -> None:
            while not ended.wait(POLL_S):
                self.series.append(engine.poll())

        thread = threading.Thread(target=poll, name="check-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(10)
            engine.stop()


def run_load(site: UrlSite, params: models.LoadStep, clock: StepClock) -> StepOutcome:
    watch = Watch()
    spec = _spec(replace(params, duration_s=clock.shortened(params.duration_s)))

    def show(seen: client.Progress) -> None:
        clock.show(seen.done, seen.total or 0)

    with watch.on(site):
        result = client.run_load(Endpoint(site.spec), spec, show)
    summary = summarize(result)
    facts = {
        "tpot_ms": summary["latency"]["tpot_ms"]["p50"],
        "generator_late_ms": lateness(summary),
        **({"prefix_expected": 0.0} if not spec.shared_prefix else {}),
        **from_snapshots(watch.series),
    }
    live = sum(s.source.state == "live" for s in watch.series)
    note = f"{summary['requests']['sent']} requests, {live} live snapshots"
    report = {"load": summary, "snapshots": len(watch.series), "live": live}
    return StepOutcome(summary_metrics(summary) | facts, note, report, result.interrupted)


def _spec(asked: models.LoadStep) -> LoadSpec:
    return make_spec(
        asked.arrivals, asked.lengths, requests=asked.requests,
        duration_s=asked.duration_s, shared_prefix=asked.shared_prefix,
        seed=asked.seed, slo=parse_slo(asked.slo) if asked.slo else Slo(),
    )  # fmt: skip


def run_sweep(site: UrlSite, params: models.SweepStep, clock: StepClock) -> StepOutcome:
    """Closed loops of 1, 2, 4 … users. What batch the engine makes of them is its own affair.

    No two runs send the same prompts, and where the target says that its prefix cache had them
    all the same there is no knee: such points measure the cache.
    """
    base = fresh_seed() if params.seed is None else params.seed
    points: list[dict[str, Any]] = []
    cached, total = 0.0, len(params.batches) * params.repeats
    for n in params.batches:
        rates = []
        for repeat in range(params.repeats):
            summary = _rung(site, params, n, repeat, derived_seed(base, n, repeat))
            rates.append(summary["throughput"]["output_tok_s"])
            tokens = summary["tokens"]
            cached = max(cached, (tokens["prompt_cached"] or 0) / max(tokens["prompt"], 1))
            clock.check(len(points) * params.repeats + len(rates), total)
        points.append({"users": n, "output_tok_s": sum(rates) / len(rates), "repeats": rates})
    rates = [max(point["output_tok_s"], 1e-9) for point in points]
    agreed = None if cached > CACHED_SHARE else _agreed_knee(params.batches, rates)
    metrics = {
        "knee": agreed,
        "recommended_cap": max(1, int(CAP_SHARE * agreed)) if agreed is not None else None,
        "cap_over_recommended": None,  # the cap is the engine's own
        "peak_tok_s": max(rates),
    }
    note = f"knee {agreed}" if agreed else "no knee that both rules agree on"
    if cached > CACHED_SHARE:
        note = f"no knee: the target's prefix cache had up to {cached:.0%} of a run's prompts"
    return StepOutcome(metrics, note, {"points": points, "knee": agreed, "prompt_cached": cached})


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
    result = client.run_load(Endpoint(site.spec), spec)
    if result.interrupted:
        raise KeyboardInterrupt
    summary = summarize(result)
    if summary["errors"]:
        lost, why = sum(summary["errors"].values()), ", ".join(summary["errors"])
        raise EngineError(f"{lost} of {count} requests of {users} users failed: {why}")
    return summary


def _agreed_knee(users: Sequence[int], rates: Sequence[float]) -> int | None:
    """Where doubling stops to pay, if the curve has bent by then."""
    found, bend = knee(users, rates), segmented_fit(users, rates)
    return found if bend is not None and bend.ratio <= TAIL_SLOPE else None


def run_checklist(site: UrlSite, params: models.ChecklistStep, clock: StepClock) -> StepOutcome:
    from checklists import book
    from playbooks.runs import checklist as step

    listed = book.load(params.name)
    given = book.read_answers(Path(params.answers)) if params.answers else {}
    seen = step.observe_url(site.spec.base, LOOK_S, site.key)
    found = step.answer_all(listed, seen, None, None)
    return checklist_outcome(listed, found, given, site.spec.address.shown, seen.seconds)


def run_canary(site: UrlSite, params: models.CanaryStep, clock: StepClock) -> StepOutcome:
    if not params.candidate_url:
        raise ConfigError("canary: against a URL the candidate is a URL too: candidate_url")
    other = EndpointSpec(params.candidate_url, api=site.api, key=site.key)
    return canary_outcome(site.spec, other, params, clock)
