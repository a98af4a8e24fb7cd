"""Which view a check's verdict is of: inside (the engine of this process), or outside (a URL).

From outside an OpenAI-compatible address and its metrics page tell a part of what the process
knows. What they cannot tell is a blind spot: it is named and counts neither way, unless the inside
is required. What they should have told and did not makes the check inconclusive in either view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from playbooks.diagnosis import CAUSES, Evidence
from playbooks.runs.gates import NOT_TOLD, Judged
from playbooks.steps.registry import STEP_TYPES

INSIDE, OUTSIDE = "inside", "outside"


@dataclass
class View:
    name: str
    required: str = OUTSIDE
    """inside: what is not told from outside counts as evidence that is missing."""
    not_told: set[str] = field(default_factory=set)
    """Metrics of the steps so far that the target cannot tell."""
    gates: list[str] = field(default_factory=list)
    """STEP.METRIC of those that nothing could be judged by."""
    steps: list[str] = field(default_factory=list)
    """Ids of those that need the inside of the engine."""

    @property
    def lenient(self) -> bool:
        """Blind spots are named and do not count."""
        return self.name == OUTSIDE and self.required == OUTSIDE

    def excused(self, not_told: frozenset[str], withheld: Sequence[str]) -> frozenset[str]:
        """Of what a step could not tell, that which does not count."""
        found = not_told.difference(withheld) if self.lenient else frozenset[str]()
        self.not_told |= found
        return found

    def saw(self, step: str, judged: Iterable[Judged]) -> None:
        self.gates += [f"{step}.{one.gate.metric}" for one in judged if one.verdict == NOT_TOLD]

    def could_not_run(self, step: str, kind: str) -> None:
        if self.lenient:
            self.steps.append(step)
            self.not_told |= set(STEP_TYPES[kind].facts)

    def planned(self, kinds: Iterable[str], evidence: Evidence) -> set[str]:
        """The facts that steps of these kinds set out to measure, as far as they can be told."""
        facts = {fact for kind in kinds for fact in STEP_TYPES[kind].facts}
        return {f for f in facts if f not in self.not_told or getattr(evidence, f) is not None}

    def blind_spots(self, kinds: Iterable[str], evidence: Evidence) -> list[str]:
        """What the verdict does not cover, in words: steps, gates, causes."""
        kinds = set(kinds)
        whole = {fact for kind in kinds for fact in STEP_TYPES[kind].facts}
        planned = self.planned(kinds, evidence)
        asked = [cause for cause in CAUSES if whole.issuperset(cause.needs)]
        causes = [cause.name for cause in asked if not planned.issuperset(cause.needs)]
        spots = (
            f"steps {', '.join(self.steps)}" if self.steps else "",
            f"gates {', '.join(self.gates)}" if self.gates else "",
            f"causes {', '.join(causes)}" if causes else "",
        )
        return [spot for spot in spots if spot]
