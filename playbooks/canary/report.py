"""A canary as its report, and as records of the optimization log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from playbooks.canary.conductor import Conductor
from playbooks.canary.router import SIDES
from playbooks.canary.rules import CanaryAction, Ruling

if TYPE_CHECKING:
    from playbooks.optlog import LogEffect, Record

SCHEMA = 1
VERDICTS = {
    CanaryAction.ADVANCE: "pass",
    CanaryAction.ROLL_BACK: "fail",
    CanaryAction.INCONCLUSIVE: "inconclusive",
}
OUTCOMES = {
    CanaryAction.ADVANCE: "promoted",
    CanaryAction.ROLL_BACK: "rolled_back",
    CanaryAction.INCONCLUSIVE: "undecided",
}
LOGGED = {"promote": "adopt", "roll_back": "rolled_back"}
"""The log's word for an action; anything else leaves the question open: hold."""


def make_report(
    conductor: Conductor,
    action: CanaryAction,
    described: dict[str, Any],
    changes: dict[str, Any],
    environment: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """Ready for JSON: no NaN, null where there is no number."""
    run, last = conductor, conductor.decisions[-1] if conductor.decisions else None
    quality, limit = run.evidence.quality, run.generator_limit
    return {
        "schema": SCHEMA,
        "kind": "canary",
        "verdict": VERDICTS[action],
        "outcome": OUTCOMES[action],
        "why": (last or {}).get("why") or run.ended_by or "",
        "interrupted": run.interrupted,
        "warnings": [*run.plan.warnings, *run.load.warnings, *([limit] if limit else [])],
        "baseline": described["baseline"],
        "candidate": described["candidate"],
        "changes": changes,
        "plan": run.plan.to_dict(),
        "load": run.load.describe(),
        "stages": [stage.to_dict() for stage in run.stages],
        "decisions": run.decisions,
        "rollback": run.rollback,
        "quality": asdict(quality) if quality is not None else None,
        "probes": {name: run.evidence.probes[name].to_dict() for name in SIDES},
        "routed": dict(run.split.routed),
        "faults": {"baseline": run.baseline_faults, "candidate": run.evidence.faults},
        "environment": environment,
        "seconds": round(seconds, 1),
    }


def logger(
    conductor: Conductor,
    changes: list[tuple[str, Any, Any]],
    config: EngineConfig | None,
    note: Callable[[str], None],
) -> Callable[[dict[str, Any]], None]:
    """Writes every decision to the optimization log; `note` is told when that cannot be done.

    `changes`: (key, before, after). The log may be on a full disk, and the canary goes on.
    """
    from engine.errors import ConfigError
    from playbooks.optlog import OptLog
    from playbooks.optlog.provenance import provenance_of

    log, around = OptLog(), provenance_of(config)

    def write(decision: dict[str, Any]) -> None:
        try:
            log.append(_record(decision, conductor, changes, around))
        except ConfigError as error:
            note(f"not logged: {error}")

    return write


def _record(
    decision: dict[str, Any],
    conductor: Conductor,
    changes: list[tuple[str, Any, Any]],
    around: dict[str, Any],
) -> Record:
    from playbooks.optlog import Change, Record

    stage, plan, load = conductor.stages[-1], conductor.plan, conductor.load
    bad = decision["action"] in ("hold", "roll_back", "inconclusive")
    return Record(
        title=f"Canary: {decision['title']}",
        what=tuple(Change(*change) for change in changes),
        why="the candidate is no worse than the baseline: errors, tail, memory and answers",
        how={"plan": plan.to_dict(), "load": load.describe(), "decision": decision},
        effect=tuple(filter(None, map(_effect, stage.rulings))),
        problems=(decision["why"],) if bad else (),
        decision=LOGGED.get(decision["action"], "hold"),
        rollback="all traffic to the baseline, which stays loaded",
        environment=around,
    )


def _effect(ruling: Ruling) -> LogEffect | None:
    from playbooks.optlog import LogEffect

    numbers, passed = ruling.numbers, ruling.call.value
    verdict = {"pass": "pass", "roll_back": "fail"}.get(passed, "inconclusive")
    if ruling.rule == "errors":
        return LogEffect("error rate", numbers["baseline"], numbers["candidate"], numbers["n"],
                      verdict=verdict)  # fmt: skip
    if ruling.rule == "tail" and numbers["ratio"] is not None:
        return LogEffect(
            "tail over the baseline's", 1.0, numbers["ratio"], numbers["n"],
            numbers["low"] - 1, numbers["high"] - 1, verdict,
        )  # fmt: skip
    return None
