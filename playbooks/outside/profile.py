"""Where the time of requests goes, as far as the target's histograms tell it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from engine.observing.host import HostEvidence
from engine.snapshot import Snapshot
from playbooks.load import client
from playbooks.load.summary import summarize
from playbooks.load.workload import make_spec
from playbooks.measure.witnessed import host_report, less_disturbed
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import summary_metrics
from playbooks.steps import models
from playbooks.steps.metrics import PROFILE, THROUGHPUT

STAGES = ("queue", "tokenize", "prefill", "decode", "detokenize")
PARTS = ("plan", "build", "sample", "apply", "telemetry")


@dataclass(frozen=True)
class _Profiled:
    result: client.LoadResult
    seen: Snapshot
    hosts: Sequence[HostEvidence]
    """Of the machine, if it is this one."""
    tripped: str | None

    @property
    def ended(self) -> bool:
        """Somebody wants no more of it."""
        return self.tripped is not None or self.result.interrupted


def run_profile(site: UrlSite, params: models.ProfileStep, clock: StepClock) -> StepOutcome:
    """Measured once more where the host took too much of it, and in doubt where it did again."""
    spec = make_spec(params.arrivals, params.lengths, requests=params.requests, seed=params.seed)

    def show(seen: client.LoadProgress) -> None:
        clock.show(seen.done, seen.total or 0)

    def measure() -> _Profiled:
        witness, endpoint = site.witness(), GuardedEndpoint(site)
        with witness or nullcontext():
            result = client.run_load(endpoint, spec, show)
            seen = site.watch.look()
        hosts = [] if witness is None else [witness.evidence]
        return _Profiled(result, seen, hosts, endpoint.tripped)

    with site.watched():
        found = less_disturbed(measure, lambda found: [] if found.ended else found.hosts)
    summary, seen = summarize(found.result), found.seen
    stages, steps = seen.stages, seen.steps
    shares = {f"{name}_share": getattr(stages, name) for name in STAGES}
    parts = {f"{name}_step_share": getattr(steps, name) for name in PARTS}
    load = summary_metrics(summary)
    metrics = {
        **{name: load[name] for name in THROUGHPUT},
        "step_ms": seen.batch.step_ms,
        "return_share": stages.return_,
        **shares,
        **parts,
        **site.facts(),
    }
    told = {name: share for name in STAGES if (share := getattr(stages, name)) is not None}
    largest = max(told, key=lambda name: told[name], default=None)
    note = "no stage is told"
    if largest is not None:
        note = f"{largest} is {told[largest]:.0%} of request time"
    blind = frozenset(n for n in PROFILE if metrics.get(n) is None and n not in THROUGHPUT)
    host = host_report(found.hosts) if found.hosts else None
    doubts = tuple(why for why in (found.tripped, host and host["doubt"]) if why)
    report = {"load": summary, "stages": shares, "parts": parts, "host": host}
    return StepOutcome(metrics, note, report, found.result.interrupted, blind, doubts)
