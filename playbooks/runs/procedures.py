"""How each type of step is run on the embedded engine, and what its metrics are.

`run_NAME(site, parameters, clock)` for every type of playbooks/steps/registry.py. Reports are
those of the commands of the same name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from playbooks.checkup.site import Site
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.steps import models
from playbooks.steps.forecast import ForecastStep


def run_environment(site: Site, params: models.EnvironmentStep, clock: StepClock) -> StepOutcome:
    from playbooks.checkup.checkup import broken_versions, environment_report

    report = environment_report(site)
    broken = broken_versions(report)
    warned = report["counts"]["warn"]
    return StepOutcome(
        {"failures": len(broken), "warnings": warned, "broken_versions": broken},
        f"{len(report['checks'])} checks, {len(broken)} failed, {warned} warned",
        report,
    )


def run_profile(site: Site, params: models.ProfileStep, clock: StepClock) -> StepOutcome:
    from playbooks.measure import profile

    report = profile.run_profile(site.config, params, clock.show)
    shares = {f"{row['stage']}_share": row["share"] for row in report["stages"]}
    parts = {f"{row['part']}_step_share": row["share"] for row in report["steps"]["parts"]}
    metrics = report["throughput"] | {"step_ms": report["steps"]["mean_ms"]} | shares | parts
    doubt = report["host"]["doubt"]
    doubts = (doubt,) if doubt else ()
    return StepOutcome(metrics, "; ".join(report["hot_spots"][:1]), report, doubts=doubts)


def run_load(site: Site, params: models.LoadStep, clock: StepClock) -> StepOutcome:
    from playbooks.checkup.checkup import examine_site

    asked = replace(params, duration_s=clock.shortened(params.duration_s))
    found = examine_site(site, asked, clock.show)
    curve = found.facts["curve"]
    metrics = summary_metrics(found.summary) | found.facts
    metrics["knee"] = curve.knee if curve is not None else None
    note = load_note(metrics)
    report = {"load": found.summary, "stages": found.stages, "parts": found.parts,
              "curve": curve.points if curve is not None else None}  # fmt: skip
    return StepOutcome(metrics, note, report, found.interrupted)


def load_note(metrics: Mapping[str, Any]) -> str:
    """In a line: what was sent, how fast, and what ran together."""
    rows, speed = metrics.get("mean_running"), metrics["output_tok_s"]
    return f"{metrics['requests']} requests, {speed:.0f} output tok/s" + (
        "" if rows is None else f", {rows:.1f} rows"
    )


def summary_metrics(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Of a load's summary, by the names of the kind `load`."""
    counts, good = summary["requests"], summary["goodput"]
    found = {
        f"{name}_{p}_ms": summary["latency"][f"{name}_ms"][p]
        for name in ("ttft", "tpot", "e2e", "queue")
        for p in ("p50", "p90", "p99")
    }
    return found | {
        "output_tok_s": summary["throughput"]["output_tok_s"],
        "requests_s": summary["throughput"]["requests_s"],
        "requests": counts["sent"],
        "error_rate": counts["error_rate"],
        "goodput_share": good["share"] if good else None,
    }


def run_sweep(site: Site, params: models.SweepStep, clock: StepClock) -> StepOutcome:
    from playbooks.measure import sweep

    report = sweep.run_sweep(site.config, params, clock.check, site.loaded)
    cap = report["recommended_cap"]
    metrics = {
        "knee": report["knee"],
        "recommended_cap": cap,
        "cap_over_recommended": site.config.max_batch / cap if cap else None,
        "peak_tok_s": max(point["output_tok_s"] for point in report["points"]),
    }
    return StepOutcome(metrics, "; ".join(report["reasons"][:1]), report)


def run_compare(site: Site, params: models.CompareStep, clock: StepClock) -> StepOutcome:
    from playbooks.measure import compare
    from playbooks.measure.experiment import find_experiment

    experiment = find_experiment(params.experiment)
    report = compare.run_compare(experiment, site.config, params, clock.check, site.loaded)
    rows = {row["metric"]: row for row in report["overall"] or report["effects"]}
    goals = [goal["verdict"] for goal in report["goals"]]
    metrics = {
        "goals_missed": goals.count("fail"),
        "goals_unclear": goals.count("inconclusive"),
        "worse": sum(row["verdict"] == "worse" for row in rows.values()),
        "throughput_ratio": _ratio(rows.get("throughput")),
        "p99_ratio": _ratio(rows.get("p99_e2e")),
    }
    return StepOutcome(metrics, "; ".join(report["findings"][-1:]), report)


def _ratio(row: Mapping[str, Any] | None) -> float | None:
    change = row["change"] if row is not None else None
    return None if change is None else 1 + change


def run_quality(site: Site, params: models.QualityStep, clock: StepClock) -> StepOutcome:
    from playbooks.checkup.checkup import probe_facts, suspect_text
    from playbooks.checkup.probe import run_probe
    from playbooks.quality import check as quality

    if params.record or params.against:
        raise ConfigError("quality: record and against are of a target at a URL; the embedded "
                          "engine is held against its baseline")  # fmt: skip
    if params.size == "probe":
        report = run_probe(site, clock.check)
        return StepOutcome(report["metrics"] | probe_facts(report), _quality_note(report), report)
    report = quality.run_quality(site.config, params, clock.check)
    probe = probe_facts(run_probe(site))  # cross-talk and clipping are not in the long check
    metrics = probe | report["metrics"]
    metrics["failed_limits"] = sum(g["verdict"] == "fail" for g in report.get("gates", ()))
    metrics["unclear"] = int(report["verdict"] == "inconclusive")
    metrics["suspects"] = tuple(map(suspect_text, report["suspects"]))
    return StepOutcome(metrics, _quality_note(report), report)


def _quality_note(report: Mapping[str, Any]) -> str:
    kld = report["metrics"]["mean_kld"]
    told = f"mean KL divergence {'–' if kld is None else f'{kld:.2g}'}"
    return "; ".join((report["verdict"], told, *report["reasons"][:1]))


def run_soak(site: Site, params: models.SoakStep, clock: StepClock) -> StepOutcome:
    from playbooks.checkup.checkup import soak_facts, soak_site

    report = soak_site(site, params, clock.check)
    slopes = report["slopes"]
    per = {name: slopes[key] and slopes[key]["per_request"] for name, key in (
        ("rss_bytes_per_request", "rss_bytes"), ("idle_pages_per_request", "idle_pages"),
        ("entries_per_request", "container_entries"))}  # fmt: skip
    metrics = {
        "grew": len(report["grew"]),
        "left": sum(sum(storm["left"].values()) for storm in report["storms"])
        + sum(report["looks"][-1]["ledger"].values()),
        **per,
        **soak_facts(report),
    }
    note = f"{report['served']} served, {len(report['grew'])} things grew"
    return StepOutcome(metrics, note, report)


def run_faults(site: Site, params: models.FaultsStep, clock: StepClock) -> StepOutcome:
    from playbooks.faults.selftest import run_selftest

    report = run_selftest(
        site.plain_config, params.faults or None, params.seeds, clock.check,
        loaded=site.plain_loaded,
    )  # fmt: skip
    missed = [row["fault"] for row in report["rows"] if not row["found"] and row["fault"]]
    alarms = sum(not row["found"] for row in report["rows"] if not row["fault"])
    note = f"{len(report['rows'])} runs, missed: {', '.join(missed) or 'none'}"
    return StepOutcome({"missed": len(missed), "false_alarms": alarms}, note, report)


def run_forecast(site: Site, params: ForecastStep, clock: StepClock) -> StepOutcome:
    from playbooks.forecast.step import embedded_fit, forecast_outcome

    return forecast_outcome(params, embedded_fit(site, params, clock), site.config, clock)


def run_checklist(site: Site, params: models.ChecklistStep, clock: StepClock) -> StepOutcome:
    from checklists import book
    from playbooks.environment.step import examine
    from playbooks.runs import checklist as step

    listed = book.load(params.name)
    given = book.read_answers(Path(params.answers)) if params.answers else {}
    seen = step.observe_embedded(site.config, progress=clock.show, loaded=site.loaded)
    found = step.answer_all(listed, seen, site.config, examine())
    return checklist_outcome(listed, found, given, "embedded", seen.seconds)


def checklist_outcome(listed: Any, found: Any, given: Any, where: str, took: float) -> StepOutcome:
    """Items that a person has to answer are open; they are counted and fail nothing here."""
    from playbooks.runs.checklist import conclude

    report = conclude(listed, found, given, where, took, None)
    verdicts = [result.verdict for result in found.values()]
    human = [item for item in listed.items if item.kind == "human" and item.id not in given]
    metrics = {
        "failed_items": verdicts.count("fail"),
        "warned_items": verdicts.count("warn"),
        "unknown_items": verdicts.count("unknown"),
        "open_items": len(human),
    }
    note = f"{verdicts.count('pass')} of {len(verdicts)} pass, {len(human)} are for a person"
    return StepOutcome(metrics, note, report)


def run_canary(site: Site, params: models.CanaryStep, clock: StepClock) -> StepOutcome:
    from engine.config import EngineConfig, parse_field

    changes = {}
    for text in params.candidate:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"candidate: {text!r}: expected key=value")
        changes[key.strip()] = parse_field(key.strip(), value.strip())
    if not changes:
        raise ConfigError('candidate: say what it changes, like ["token_budget=384"]')
    candidate = EngineConfig.from_dict(site.config.to_dict() | changes, "candidate")
    return canary_outcome(site.config, candidate, params, clock, loaded=site.loaded)


def canary_outcome(
    baseline: Any, candidate: Any, params: models.CanaryStep, clock: StepClock, **more: Any
) -> StepOutcome:
    """`more`: for `run_canary` of playbooks/canary/step.py."""
    from playbooks.canary import step as canary
    from playbooks.canary.events import Beat, Event
    from playbooks.canary.plan import CanaryPlan
    from playbooks.load.workload import ENDLESS_S, make_spec

    spec = make_spec(params.arrivals, params.lengths, duration_s=ENDLESS_S, seed=params.seed)
    end = None if clock.left_s is None else time.monotonic() + clock.left_s

    def over() -> bool:
        return end is not None and time.monotonic() > end

    def show(event: Event) -> None:
        if isinstance(event, Beat):
            clock.show(min(event.candidate, event.wanted), event.wanted)

    report = canary.run_canary(
        CanaryPlan.of(params), baseline, candidate, spec, listener=show, log=clock.log, stop=over,
        **more,
    )  # fmt: skip
    shares = [stage["share"] for stage in report["stages"]]
    # undecided is neither missed nor passed: without numbers its gates are inconclusive, too
    decided = report["verdict"] != "inconclusive"
    metrics = {
        "reached_percent": 100 * max(shares, default=0.0) if decided else None,
        "rolled_back": int(report["verdict"] == "fail") if decided else None,
    }
    back = report["rollback"] if metrics["rolled_back"] else None
    metrics["rollback_ms"] = back["last_request_ms"] if back else None
    metrics["rollback_idle_ms"] = back["idle_ms"] if back else None
    cut = report["interrupted"] and over()
    why = "its time is over" if cut else report["why"]
    note = {
        "promoted": f"promoted: {why}",
        "rolled_back": f"rolled back: {why}",
        "undecided": f"undecided: {why}",
    }[report["outcome"]]
    return StepOutcome(metrics, note, report, report["interrupted"] and not cut)
