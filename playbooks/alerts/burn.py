"""Alerts that come with objectives: most requests miss it; its budget is spent much too fast, too
fast, or all of it.

A rule of one's own with the same name takes their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.observing.objectives import REACHABLE, Objective
from playbooks.alerts.fields import OBJECTIVES, budgets_reading
from playbooks.alerts.file import AlertsFile, Rule
from playbooks.objectives.budget import ENDED, FAST, RATES, SLOW
from playbooks.objectives.file import NAMES, Objectives
from playbooks.steps.durations import words

MOST = 0.5
SEVERITY = {FAST: "critical", SLOW: "warning"}


def with_burn_rules(alerts: AlertsFile, objectives: Objectives) -> AlertsFile:
    own = {rule.name for rule in alerts.rules}
    added = (rule for one in objectives.each for rule in _rules(one, objectives.window_s))
    return replace(alerts, rules=(*alerts.rules, *(rule for rule in added if rule.name not in own)))


def comes_with_objectives(rule: str) -> bool:
    """A rule by its name."""
    name, _, rest = rule.partition(" ")
    return name in NAMES and rest.partition(" ")[0] in ("missed", "budget")


def _rules(objective: Objective, window_s: float) -> Iterator[Rule]:
    if objective.name != REACHABLE:  # that nobody answers is the alert `source`, at once
        yield from _rules_on_pace(objective, window_s)
    text = "more has missed it than the whole window allows"
    about = f"share of the {objective.name} budget that is spent"
    yield _rule(objective, "spent", 1.0, 1.0, "critical", text, about)


def _rules_on_pace(objective: Objective, window_s: float) -> Iterator[Rule]:
    if objective.allowed < MOST * ENDED:
        about = f"share of the newest requests that missed {objective.name}"
        text = "most requests miss it: look at the queue, the engine and what changed"
        yield _rule(objective, "missing", MOST, MOST * ENDED, "critical", text, about)
    for kind, (above, long, short) in RATES.items():
        about = (
            f"pace of the {objective.name} budget over {words(window_s * long)} and "
            f"{words(window_s * short)} (1 lasts)"
        )
        last = words(window_s / above)
        text = f"at this pace the whole window's budget would be gone in {last}"
        yield replace(
            _rule(objective, kind, above, above * ENDED, SEVERITY[kind], text, about),
            relapse_s=window_s * short,
        )


def _rule(
    objective: Objective,
    what: str, above: float, clears: float, severity: str, text: str, about: str,
) -> Rule:  # fmt: skip
    field = f"{OBJECTIVES}.{objective.name}.{what}"
    name = f"{objective.name} missed" if what == "missing" else f"{objective.name} budget {what}"
    read = budgets_reading(field)
    return Rule(name, field, read, above, True, clears, 0.0, None, severity, text, about)
