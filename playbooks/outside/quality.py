"""Quality from outside: cross-talk, and greedy answers held against answers of before.

The target against itself is the floor and is always run: what differs between two of its own
answers to one prompt is no change. Answers come from the golden set and from files of the user's.
Passkeys, JSON and tool calls are judged by themselves; top log probabilities are compared where the
target gives them. Without answers to be held against (`against`: a file that `record` wrote, or a
second URL) nothing is said about a change.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from playbooks.outside.answers import AnswerSet, compared, is_url, read, write
from playbooks.outside.crosstalk import CrossTalk, cross_talk
from playbooks.outside.quality_cases import gather
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.steps import models
from playbooks.steps.metrics import QUALITY

LEAST_KEPT = 0.2
"""Of an answer, what the target repeats of itself: below, its answers are drawn at random."""


def run_quality(site: UrlSite, params: models.QualityStep, clock: StepClock) -> StepOutcome:
    metrics: dict[str, Any] = {}
    report: dict[str, Any] = {}
    doubts: list[str] = []
    notes: list[str] = []
    with site.watched():
        found, endpoint = cross_talk(site)
        clock.check(1, 4)
        metrics["mixed_answers"] = len(found.mixed) if found.told_apart else None
        metrics |= {"repeats": found.repeats, "emptied": found.emptied}
        report["crosstalk"] = asdict(found)
        doubts += _doubts(found)
        notes.append(f"{len(found.mixed)} clients got another's answer")
        if params.size != "probe" or params.record or params.against:
            _answers(site, params, clock, metrics, report, notes)
    if endpoint.tripped:
        doubts.append(endpoint.tripped)
    metrics |= site.facts()
    told = frozenset(n for n in QUALITY if metrics.get(n) is None and n != "mixed_answers")
    return StepOutcome(metrics, "; ".join(notes), report, not_told=told, doubts=tuple(doubts))


def _doubts(found: CrossTalk) -> list[str]:
    if found.answered < found.asked / 2:
        return [f"only {found.answered} of {found.asked} marked requests were answered"]
    if not found.told_apart:
        return ["the answers are too alike to tell clients apart"]
    return []


def _answers(
    site: UrlSite, params: models.QualityStep, clock: StepClock, metrics: dict[str, Any],
    report: dict[str, Any], notes: list[str],
) -> None:  # fmt: skip
    endpoint = GuardedEndpoint(site)
    own = gather(site, endpoint, params)
    clock.check(2, 4)
    again = gather(site, endpoint, params, floor=True)
    clock.check(3, 4)
    if params.record:
        write(own, Path(params.record))
        notes.append(f"{len(own.texts)} answers recorded in {params.record}")
    before = _reference(site, params)
    judged = compared(before, own, again)
    metrics |= judged.metrics
    metrics["unclear"] = int((judged.floor or 0.0) < LEAST_KEPT)
    report["answers"] = {
        "floor": judged.floor, "gates": judged.gates, "against": params.against,
        "json_valid": own.json_valid, "calls_valid": own.calls_valid, "not_told": own.untold,
    }  # fmt: skip
    notes += [judged.text, *own.untold]


def _reference(site: UrlSite, params: models.QualityStep) -> AnswerSet | None:
    if params.against is None:
        return None
    if not is_url(params.against):
        return read(Path(params.against))
    other = site.beside(params.against)
    with other.watched():
        return gather(other, GuardedEndpoint(other), params)
