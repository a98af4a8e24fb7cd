"""The report of a forecast: what was asked, what came of it, and what it means, in words first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from playbooks.forecast import answers
from playbooks.forecast.course import Scenario
from playbooks.forecast.fit_file import Fit
from playbooks.forecast.outlook import Outlook
from playbooks.forecast.run import Found, Question
from playbooks.forecast.score import in_words
from playbooks.forecast.typical import Sampling
from playbooks.reports.text import json_values

SCHEMA = 1
MOST_SPANS = 3
"""Of hours in which the objective is missed, in one sentence."""
KIND = "forecast"


def report_of(
    question: Question, found: Found, outlook: Outlook, scores: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """`scores`: what earlier forecasts were worth, as `past_scores` has them."""
    scenarios = [_scenario(question, found, i) for i in range(len(question.scenarios))]
    smallest = _smallest(question, found)
    first = scenarios[0]
    report = {
        "schema": SCHEMA,
        "kind": KIND,
        "start": question.start.isoformat(),
        "seconds": question.seconds,
        "days": len(question.days),
        "seed": question.seed,
        "traffic": outlook.report(),
        "objective": {"slo": question.slo.to_dict(), "target": question.target},
        "verdict": first["verdict"],
        "holds_on": first["holds_on"],
        "scenarios": scenarios,
        "smallest": smallest,
        "past_scores": list(scores),
        "assumptions": [*outlook.assumptions, *_assumptions(question, found)],
        "warnings": _warnings(question, found),
    }
    report["sentences"] = sentences(report)
    plain: dict[str, Any] = json_values(report)
    return plain


def _fit(fit: Fit) -> dict[str, Any]:
    held_out = None if fit.held_out is None else asdict(fit.held_out)
    return asdict(fit.fingerprint) | {"drift": fit.drift, "held_out": held_out}


def _scenario(question: Question, found: Found, place: int) -> dict[str, Any]:
    scenario, days = question.scenarios[place], found.days[place]
    verdict, holds_on = answers.verdict(days, question.target)
    return {
        "name": scenario.name,
        "fit": _fit(scenario.fit),
        "settings": _changed(scenario),
        "replicas": scenario.replicas,
        "router": scenario.router,
        "scaling": None if scenario.scaling is None else asdict(scenario.scaling),
        "losses": [asdict(loss) for loss in scenario.losses],
        "capacity_requests_s": found.paces[place].able,
        "sampling": _sampled(found.samplings[place]),
        "verdict": verdict,
        "holds_on": holds_on,
        "saturations": answers.saturation_answers(days, question.start, question.seconds),
        "totals": answers.totals(days, question.target),
        "hours": answers.hour_answers(days, question.start),
    }


def _changed(scenario: Scenario) -> dict[str, Any]:
    """Settings that are not those of the fit."""
    before = scenario.fit.config.to_dict()
    return {key: v for key, v in scenario.config.to_dict().items() if before[key] != v}


def _sampled(sampling: Sampling | None) -> dict[str, Any] | None:
    return None if sampling is None else asdict(sampling)


def _smallest(question: Question, found: Found) -> dict[str, Any] | None:
    if found.smallest is None:
        return None
    each = [count for count in found.smallest if count is not None]
    known = len(each) == len(found.smallest)
    whole = max(each) if known else None
    return {
        "hours": found.smallest,
        "whole": whole,
        "replica_hours": float(sum(each)) if known else None,
        "constant_replica_hours": whole * question.seconds / 3600 if whole is not None else None,
    }


def _assumptions(question: Question, found: Found) -> list[str]:
    notes = [note for scenario in question.scenarios for note in scenario.fit.notes]
    for scenario, sampling in zip(question.scenarios, found.samplings, strict=True):
        if sampling is not None:
            simulated = sampling.windows * sampling.window_s
            notes.append(
                f"of each hour {simulated:.0f} s are simulated, of up to {sampling.replicas} "
                "replicas; between them batches stand still, and how many requests there are goes "
                "on"
            )
        if any(loss.back_after_s is None for loss in scenario.losses):
            notes.append("a lost replica does not come back by itself")
        if scenario.losses:
            notes.append("requests of a lost replica fail, and nobody retries them")
    return list(dict.fromkeys(notes))


def _warnings(question: Question, found: Found) -> list[str]:
    notes = []
    rejected = sum(day.rejected for day in found.days[0])
    if rejected:
        notes.append(
            f"{rejected} simulated requests are longer than the engine takes "
            f"({question.scenarios[0].fit.max_model_len} tokens), and fail"
        )
    if question.scenarios[0].fit.held_out is None:
        notes.append("the fit was not held against steps that it had not seen")
    return notes


# --- words ------------------------------------------------------------------------------------


def sentences(report: dict[str, Any]) -> list[str]:
    """What an operator has to know, the most important first."""
    many = len(report["scenarios"]) > 1
    said = []
    for scenario in report["scenarios"]:
        name = f"{scenario['name']}: " if many else ""
        said += [name + text for text in _saturated(report, scenario)]
        said.append(name + _verdict(report, scenario))
    if report["smallest"] is not None:
        said.append(_fleet(report))
    if report["past_scores"]:
        said.append(in_words(report["past_scores"]))
    return said


def _saturated(report: dict[str, Any], scenario: dict[str, Any]) -> list[str]:
    return [
        f"saturates at {clock(report, span['from'])}, "
        + (
            "does not recover"
            if span["until"] is None
            else f"recovers {clock(report, span['until'])}"
        )
        + f", on {span['days']} of {report['days']} plausible days; "
        + (
            "no replica is left"
            if span["worst_delay_s"] is None
            else f"what waits then takes up to {_length(span['worst_delay_s'])}"
        )
        for span in scenario["saturations"]
    ]


def _verdict(report: dict[str, Any], scenario: dict[str, Any]) -> str:
    good, target = scenario["totals"]["good"], 100 * report["objective"]["target"]
    slo = ", ".join(
        f"{name.removesuffix('_ms').upper()} {limit:g} ms"
        for name, limit in report["objective"]["slo"].items()
    )
    what = f"{target:.4g}% of the requests " + (f"within {slo}" if slo else "answered")
    days = f"on {scenario['holds_on']} of {report['days']} plausible days"
    text = {"holds": "holds", "fails": "does not hold", "uncertain": "may not hold"}
    found = f"{text[scenario['verdict']]}: {what} {days}"
    if good["value"] is not None:
        found += f"; {good['value']:.2%} ({good['low']:.2%} to {good['high']:.2%})"
    missed = list(_missed(report, scenario))
    if missed:
        spans, more = ", ".join(missed[:MOST_SPANS]), len(missed) - MOST_SPANS
        rest = " and once more" if more == 1 else f" and {more} times more" if more > 0 else ""
        found += f"; missed {spans}{rest}"
    return found


def _missed(report: dict[str, Any], scenario: dict[str, Any]) -> Iterator[str]:
    """Runs of hours in which the objective is not held, by the clock."""
    target, begin = report["objective"]["target"], None
    for hour in [*scenario["hours"], None]:
        good = None if hour is None else hour["good"]["value"]
        if good is not None and good < target:
            begin = begin or hour["at"]
        elif begin is not None:
            until = "the end" if hour is None else clock(report, hour["at"])
            yield f"{clock(report, begin)} to {until}"
            begin = None


def _fleet(report: dict[str, Any]) -> str:
    smallest = report["smallest"]
    if smallest["whole"] is None:
        hour = smallest["hours"].index(None)
        at = report["scenarios"][0]["hours"][hour]["at"]
        return f"no number of replicas holds the objective at {clock(report, at)}"
    whole = smallest["whole"]
    return (
        f"{whole} {'replica holds' if whole == 1 else 'replicas hold'} it in every hour and take "
        f"{smallest['constant_replica_hours']:.0f} replica-hours; as many as each hour needs take "
        f"{smallest['replica_hours']:.0f}"
    )


def clock(report: dict[str, Any], moment: str) -> str:
    """The time of day, with the date where the period has several."""
    at = datetime.fromisoformat(moment)
    return f"{at:%H:%M}" if report["seconds"] <= 90_000 else f"{at:%a %d %b %H:%M}"


def _length(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
