"""Steps against an engine at a URL: what its API and its metrics allow, and no more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.errors import ConfigError, EngineError
from engine.snapshot import Snapshot
from playbooks.checkup.site import UrlSite
from playbooks.checkup.watched_load import lateness
from playbooks.diagnosis import from_snapshots
from playbooks.load import client
from playbooks.load.arrivals import Closed
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.mix import parse_mix
from playbooks.load.slo import Slo, parse_slo
from playbooks.load.summary import summarize
from playbooks.load.workload import LoadSpec, make_spec
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import canary_outcome, checklist_outcome, summary_metrics
from playbooks.statistics.knee import TAIL_SLOPE, knee, segmented_fit
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
    """Closed loops of 1, 2, 4 … users. What batch the engine makes of them is its own affair."""
    mix = parse_mix(params.lengths)
    users = params.batches
    points, done, total = [], 0, len(users) * params.repeats
    for n in users:
        rates = []
        for repeat in range(params.repeats):
            count = max(params.least_requests, params.requests_per_user * n)
            spec = LoadSpec(Closed(n), mix, requests=count, seed=params.seed + repeat)
            result = client.run_load(Endpoint(site.spec), spec)
            if result.interrupted:
                raise KeyboardInterrupt
            summary = summarize(result)
            if summary["requests"]["failed"]:  # such a point measures nothing
                lost, why = summary["requests"]["failed"], ", ".join(summary["errors"])
                raise EngineError(f"{lost} of {count} requests of {n} users failed: {why}")
            rates.append(summary["throughput"]["output_tok_s"])
            done += 1
            clock.check(done, total)
        points.append({"users": n, "output_tok_s": sum(rates) / len(rates), "repeats": rates})
    rates = [max(point["output_tok_s"], 1e-9) for point in points]
    found, bend = knee(users, rates), segmented_fit(users, rates)
    agreed = found if bend is not None and bend.ratio <= TAIL_SLOPE else None
    metrics = {
        "knee": agreed,
        "recommended_cap": max(1, int(0.75 * agreed)) if agreed is not None else None,
        "cap_over_recommended": None,  # the cap is the engine's own
        "peak_tok_s": max(rates),
    }
    note = f"knee {agreed}" if agreed else "no knee that both rules agree on"
    return StepOutcome(metrics, note, {"points": points, "knee": agreed})


def run_checklist(site: UrlSite, params: models.ChecklistStep, clock: StepClock) -> StepOutcome:
    from checklists import book
    from playbooks.runs import checklist as step

    listed = book.load(params.name)
    given = book.read_answers(Path(params.answers)) if params.answers else {}
    seen = step.observe_url(site.spec.base, LOOK_S, site.key)
    found = step.answer_all(listed, seen, None, None)
    return checklist_outcome(listed, found, given, site.url, seen.seconds)


def run_canary(site: UrlSite, params: models.CanaryStep, clock: StepClock) -> StepOutcome:
    if not params.candidate_url:
        raise ConfigError("canary: against a URL the candidate is a URL too: candidate_url")
    other = EndpointSpec(params.candidate_url, api=site.api, key=site.key)
    return canary_outcome(site.spec, other, params, clock)
