"""The automatic items of a checklist, answered by what a target's metrics say."""

from __future__ import annotations

from pathlib import Path

from playbooks.outside.site import UrlSite
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.procedures import checklist_outcome
from playbooks.steps import models

LOOK_S = 5.0


def run_checklist(site: UrlSite, params: models.ChecklistStep, clock: StepClock) -> StepOutcome:
    from checklists import book
    from playbooks.runs import checklist as step

    listed = book.load(params.name)
    given = book.read_answers(Path(params.answers)) if params.answers else {}
    seen = step.observe_url(site.spec.base, LOOK_S, site.key)
    found = step.answer_all(listed, seen, None, None)
    return checklist_outcome(listed, found, given, site.spec.address.shown, seen.seconds)
