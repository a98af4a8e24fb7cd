"""Alerts on budgets that come with objectives: spending much too fast, too fast, and all spent.

A rule of one's own with the same name takes their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.observing.objectives import Objective
from playbooks.alerts.fields import OBJECTIVES, budgets_reading
from playbooks.alerts.file import AlertsFile, Rule
from playbooks.objectives.budget import FAST, RATES, SLOW
from playbooks.objectives.file import Objectives
from playbooks.steps.durations import words

CLEARS = 0.5
"""Spending is over at so many times the rate at which it is told."""
SEVERITY = {FAST: "critical", SLOW: "warning"}


def with_burn_rules(alerts: AlertsFile, objectives: Objectives) -> AlertsFile:
    own = {rule.name for rule in alerts.rules}
    added = (rule for one in objectives.each for rule in _rules(one, objectives.window_s))
    return replace(alerts, rules=(*alerts.rules, *(rule for rule in added if rule.name not in own)))


def _rules(objective: Objective, window_s: float) -> Iterator[Rule]:
    for kind, (above, long, short) in RATES.items():
        about = (
            f"pace of the {objective.name} budget over {words(window_s * long)} and "
            f"{words(window_s * short)} (1 lasts)"
        )
        last = words(window_s / above)
        text = f"at this pace the whole window's budget would be gone in {last}"
        yield _rule(objective, kind, above, above * CLEARS, SEVERITY[kind], text, about)
    text = "more requests have missed it than the whole window allows"
    about = f"share of the {objective.name} budget that is spent"
    yield _rule(objective, "spent", 1.0, 1.0, "critical", text, about)


def _rule(
    objective: Objective,
    what: str, above: float, clears: float, severity: str, text: str, about: str,
) -> Rule:  # fmt: skip
    field = f"{OBJECTIVES}.{objective.name}.{what}"
    name = f"{objective.name} budget {what}"
    read = budgets_reading(field)
    return Rule(name, field, read, above, True, clears, 0.0, None, severity, text, about)
