"""A load on a target at a URL, while its metrics are watched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from playbooks.checkup.site import UrlSite
from playbooks.checkup.watched_load import host_facts, lateness
from playbooks.diagnosis import from_snapshots
from playbooks.load import client
from playbooks.load.endpoint import Endpoint
from playbooks.load.slo import Slo, parse_slo
from playbooks.load.summary import summarize
from playbooks.load.workload import LoadSpec, make_spec
from playbooks.outside.watch import Watch
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import summary_metrics
from playbooks.steps import models
from playbooks.steps.metrics import LOAD_FACTS

PAGE = ("mean_running", "waiting_share")
DUE = ("error_rate", "tpot_ms", "generator_late_ms", *PAGE)
"""The client's own, and what every engine's metrics page has: missing, they are not excused."""
QUEUE = ("queue_p50_ms", "queue_p90_ms", "queue_p99_ms")


def run_load(site: UrlSite, params: models.LoadStep, clock: StepClock) -> StepOutcome:
    watch = Watch()
    spec = _spec(replace(params, duration_s=clock.shortened(params.duration_s)))

    def show(seen: client.LoadProgress) -> None:
        clock.show(seen.done, seen.total or 0)

    witness = site.witness()
    with watch.on(site), witness or nullcontext():
        result = client.run_load(Endpoint(site.spec), spec, show)
    summary = summarize(result)
    facts = {
        "tpot_ms": summary["latency"]["tpot_ms"]["p50"],
        "generator_late_ms": lateness(summary),
        **({"prefix_expected": 0.0} if not spec.shared_prefix else {}),
        **from_snapshots(watch.series),
        **(host_facts(witness.evidence) if witness is not None else {}),
    }
    live = len(watch.live)
    note = f"{summary['requests']['sent']} requests, {live} live snapshots"
    report = {"load": summary, "snapshots": len(watch.series), "live": live}
    metrics = summary_metrics(summary) | facts
    doubts = [f"{name} is missing: the target has no metrics page that answers"
              for name in PAGE if metrics.get(name) is None]  # fmt: skip
    return StepOutcome(
        metrics, note, report, result.interrupted, _not_told(metrics), tuple(doubts[:1])
    )


def _not_told(metrics: Mapping[str, Any]) -> frozenset[str]:
    """What the target's page lacks; the client's own figures, and those that every page has, are
    never excused."""
    return frozenset(
        name for name in (*LOAD_FACTS, "knee", "decode_share", "log_lines_per_request", *QUEUE)
        if metrics.get(name) is None and name not in DUE
    )  # fmt: skip


def _spec(asked: models.LoadStep) -> LoadSpec:
    return make_spec(
        asked.arrivals, asked.lengths, requests=asked.requests,
        duration_s=asked.duration_s, shared_prefix=asked.shared_prefix,
        seed=asked.seed, slo=parse_slo(asked.slo) if asked.slo else Slo(),
    )  # fmt: skip
