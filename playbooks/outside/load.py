"""A load on a target at a URL, while its metrics are watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from playbooks.checkup.watched_load import host_facts, lateness
from playbooks.diagnosis import from_snapshots
from playbooks.load import client
from playbooks.load.record import EMPTY, NOT_SENT, RequestRecord
from playbooks.load.slo import Slo, parse_slo
from playbooks.load.summary import summarize
from playbooks.load.workload import LoadSpec, make_spec
from playbooks.outside.care import GuardTripped
from playbooks.outside.counters import Counters, disagreements
from playbooks.outside.replicas import odd_replicas
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import load_note, summary_metrics
from playbooks.steps import models
from playbooks.steps.metrics import LOAD_FACTS

DUE = ("refused_share", "tpot_ms", "generator_late_ms")
"""The client's own: missing, they are not excused."""
QUEUE = ("queue_p50_ms", "queue_p90_ms", "queue_p99_ms")
NO_PAGE = "no metrics page of the target answers"


def run_load(site: UrlSite, params: models.LoadStep, clock: StepClock) -> StepOutcome:
    spec = _spec(replace(params, duration_s=clock.shortened(params.duration_s)))

    def show(seen: client.LoadProgress) -> None:
        clock.show(seen.done, seen.total or 0)

    witness = site.witness()
    with site.watched(), witness or nullcontext():
        first = site.watch.look()
        before = Counters.of(first)
        endpoint = GuardedEndpoint(site)
        with site.watch.kept() as series:
            result = client.run_load(endpoint, spec, show)
        disagree = disagreements(before, result.records, site.watch)
        after = Counters.of(site.watch.look())
    odd, stopped = _replicas(site, endpoint.tripped)
    if endpoint.tripped:  # what was then not sent has not failed
        result.records = [r for r in result.records if r.error != NOT_SENT]
    summary = summarize(result)
    facts = {
        "tpot_ms": summary["latency"]["tpot_ms"]["p50"],
        "generator_late_ms": lateness(summary),
        **({"prefix_expected": 0.0} if not spec.shared_prefix else {}),
        **from_snapshots(series),
        "prefix_hit_ratio": after.hit_ratio(before),
        **(host_facts(witness.evidence) if witness is not None else {}),
        **site.facts(),
        "inconsistent": disagree,
        "odd_replicas": odd,
    }
    live = sum(seen.source.state == "live" for seen in series)
    metrics = summary_metrics(summary) | facts
    report = {"load": summary, "snapshots": len(series), "live": live}
    has_page = first.source.state == "live" or live
    silent = mostly_empty(result.records)
    doubts = tuple(why for why in (stopped, silent, None if has_page else NO_PAGE) if why)
    return StepOutcome(
        metrics, load_note(metrics), report, result.interrupted, _not_told(metrics), doubts
    )


def _replicas(site: UrlSite, tripped: str | None) -> tuple[tuple[str, ...] | None, str | None]:
    """Those unlike the others, and why nothing more is sent: one of them had enough already."""
    if tripped or not site.replicas:
        return (None if site.replicas else ()), tripped
    try:
        return odd_replicas(site.group), None
    except GuardTripped as trip:
        return None, str(trip)


def mostly_empty(records: Sequence[RequestRecord]) -> str | None:
    """In words, where most answers have no text: what is measured is then of the few others."""
    empty = sum(r.error == EMPTY for r in records)
    return f"{empty} of {len(records)} answers have no text" if 2 * empty > len(records) else None


def _not_told(metrics: Mapping[str, Any]) -> frozenset[str]:
    """What the target's page lacks, or has no time to tell in a load that is over at once."""
    possible = (
        *LOAD_FACTS,
        "knee",
        "decode_share",
        "log_lines_per_request",
        "inconsistent",
        *QUEUE,
    )
    return frozenset(n for n in possible if metrics.get(n) is None and n not in DUE)


def _spec(asked: models.LoadStep) -> LoadSpec:
    return make_spec(
        asked.arrivals, asked.lengths, requests=asked.requests,
        duration_s=asked.duration_s, shared_prefix=asked.shared_prefix,
        seed=asked.seed, slo=parse_slo(asked.slo) if asked.slo else Slo(),
    )  # fmt: skip
