"""One stage of a canary, while it runs and after, and what a decision about it is called."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from playbooks.canary.evidence import CanaryEvidence, Sample, side_dict
from playbooks.canary.plan import percent
from playbooks.canary.router import SIDES
from playbooks.canary.rules import CanaryAction, RuleVerdict, Ruling


@dataclass
class Stage:
    """One stage, while it runs and after. `share` 0 is the baseline's time alone."""

    number: int
    share: float
    began_s: float
    counts_from: int
    """ns: requests due earlier are not counted."""
    evidence: CanaryEvidence
    looks: int = 0
    ended_s: float | None = None
    action: CanaryAction = CanaryAction.HOLD
    rulings: list[Ruling] = field(default_factory=list)
    """Of the last look."""
    own: dict[str, list[Sample]] = field(default_factory=lambda: {s: [] for s in SIDES})
    """What ended in it, by side."""
    probe: asyncio.Task[None] | None = None
    """Asks the marked prompts."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "stage": self.number,
            "share": self.share,
            "began_s": self.began_s,
            "ended_s": self.ended_s,
            "looks": self.looks,
            "action": self.action.value,
            "rulings": [asdict(ruling) for ruling in self.rulings],
            **{name: side_dict(samples) for name, samples in self.own.items()},
        }


def unfinished(ruling: Ruling) -> Ruling:
    """While marked prompts are being answered, the answers of earlier ones do not suffice."""
    if ruling.rule != "crosstalk" or ruling.call is not RuleVerdict.PASS:
        return ruling
    return replace(ruling, call=RuleVerdict.HOLD, why="marked prompts are being answered")


def title(stage: Stage, action: CanaryAction, final: bool) -> str:
    at = percent(stage.share)
    return {
        CanaryAction.ADVANCE: "candidate promoted"
        if final
        else f"{at} of the users to the candidate",
        CanaryAction.HOLD: f"hold at {at}",
        CanaryAction.ROLL_BACK: f"rolled back at {at}",
        CanaryAction.INCONCLUSIVE: f"ended undecided at {at}, all traffic back on the baseline",
    }[action]
