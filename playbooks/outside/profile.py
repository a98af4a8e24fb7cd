"""Where the time of requests goes, as far as the target's histograms tell it."""

from __future__ import annotations

from playbooks.load import client
from playbooks.load.summary import summarize
from playbooks.load.workload import make_spec
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import summary_metrics
from playbooks.steps import models
from playbooks.steps.metrics import PROFILE, THROUGHPUT

STAGES = ("queue", "tokenize", "prefill", "decode", "detokenize")
PARTS = ("plan", "build", "sample", "apply", "telemetry")


def run_profile(site: UrlSite, params: models.ProfileStep, clock: StepClock) -> StepOutcome:
    spec = make_spec(params.arrivals, params.lengths, requests=params.requests, seed=params.seed)

    def show(seen: client.LoadProgress) -> None:
        clock.show(seen.done, seen.total or 0)

    with site.watched():
        endpoint = GuardedEndpoint(site)
        result = client.run_load(endpoint, spec, show)
        seen = site.watch.look()
    summary, stages, steps = summarize(result), seen.stages, seen.steps
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
    told = {name: share for name, share in shares.items() if share is not None}
    largest = max(told, key=lambda name: told[name], default=None)
    note = "no stage is told" if largest is None else f"{largest}: {told[largest]:.0%}"
    blind = frozenset(n for n in PROFILE if metrics.get(n) is None and n not in THROUGHPUT)
    doubts = tuple(why for why in (endpoint.tripped,) if why)
    return StepOutcome(
        metrics, note, {"load": summary, "stages": shares, "parts": parts},
        result.interrupted, blind, doubts,
    )  # fmt: skip
