"""Runs one step of a playbook, or says why not, and judges its gates."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.errors import ConfigError, EngineError
from playbooks.diagnosis import FACTS
from playbooks.outside.care import GuardTripped
from playbooks.outside.site import UrlSite
from playbooks.runs.events import GateJudged, Listener, StepProgress
from playbooks.runs.gates import INCONCLUSIVE, NOT_TOLD, judge_all, worst
from playbooks.runs.outcome import StepClock, StepOutcome
from playbooks.runs.spec import PlaybookStep
from playbooks.runs.state import ERROR, INTERRUPTED, NOT_AVAILABLE, SKIPPED, CheckState, Row

log = logging.getLogger("evewatch.playbooks")


class BudgetSpent(Exception):
    """The time for a step is over."""


class StepRunner:
    """What a step finds goes into the check's evidence; its row is the caller's to keep."""

    def __init__(self, check: CheckState, listener: Listener) -> None:
        self._check, self._tell = check, listener

    def why_not(self, step: PlaybookStep) -> tuple[str, str] | None:
        """(verdict, reason) for a step that is not to be run, or None."""
        left = self._check.left(step)
        if left is not None and left <= 0:
            return INCONCLUSIVE, "the time budget is spent"
        if step.when is not None:
            holds = step.when.holds(self._check.results)
            if holds is None:
                return INCONCLUSIVE, f"its condition cannot be known: {step.when.text}"
            if not holds:
                return SKIPPED, f"its condition does not hold: {step.when.text}"
        needs = step.type.needs
        if needs is not None and getattr(step.parameters, needs) is None:
            return SKIPPED, f"nothing to do without --with {step.id}.{needs}=…"
        if isinstance(self._check.target, UrlSite) and not step.type.on_url:
            return NOT_AVAILABLE, "it needs the inside of the engine, and the target is a URL"
        return None

    def skip(self, step: PlaybookStep, verdict: str, reason: str) -> Row:
        """A gate of a step that was not run is not passed either."""
        view, excused = self._check.view, frozenset[str]()
        if verdict == NOT_AVAILABLE:
            view.could_not_run(step.id, step.kind)
            excused = frozenset(gate.metric for gate in step.gates if view.lenient)
        judged = judge_all(step.gates, {}, excused) if verdict != SKIPPED else []
        gates = [one.to_dict() for one in judged]
        return _row(step) | {"verdict": verdict, "reason": reason, "gates": gates}

    def run(self, step: PlaybookStep) -> tuple[Row, KeyboardInterrupt | None]:
        """Its row, and the interrupt that ended it; the caller keeps the row and raises that."""
        start, row, interrupt = time.monotonic(), _row(step), None
        try:
            outcome = self.call(step)
            row |= self._judged(step, outcome)
            if outcome.interrupted:
                raise KeyboardInterrupt
        except (BudgetSpent, GuardTripped) as spent:
            row |= {"verdict": INCONCLUSIVE, "reason": str(spent)}
        except KeyboardInterrupt as error:
            row |= {"verdict": INTERRUPTED, "reason": "interrupted"}
            interrupt = error
        except ConfigError as error:
            row |= {"verdict": ERROR, "reason": str(error)}
        except EngineError as error:
            row |= {"verdict": ERROR, "reason": str(error)}
            self._check.problem = self._check.problem or str(error)
        except Exception as error:
            log.exception("step %s broke", step.id)
            row |= {"verdict": ERROR, "reason": f"{type(error).__name__}: {error}"}
        row["seconds"] = round(time.monotonic() - start, 2)
        return row, interrupt

    def call(self, step: PlaybookStep) -> StepOutcome:
        """Its procedure, nothing judged. Raises what that raises, and BudgetSpent."""
        target = self._check.target
        run = step.type.procedure(at_url=isinstance(target, UrlSite))
        result: StepOutcome = run(target, step.parameters, self._clock(step))
        return result

    def _clock(self, step: PlaybookStep) -> StepClock:
        left = self._check.left(step)
        end = None if left is None else time.monotonic() + left

        def show(done: int, total: int) -> None:
            self._tell(StepProgress(step.id, done, total))

        def check(done: int, total: int) -> None:
            show(done, total)
            if end is not None and time.monotonic() > end and done < total:
                raise BudgetSpent(f"its time is over after {done} of {total}")

        return StepClock(left, show, check, self._check.options.log)

    def _judged(self, step: PlaybookStep, outcome: StepOutcome) -> dict[str, Any]:
        check, withheld = self._check, self._check.options.withheld
        metrics = {k: v for k, v in outcome.metrics.items() if k not in withheld}
        judged = judge_all(step.gates, metrics, check.view.excused(outcome.not_told, withheld))
        check.view.saw(step.id, judged)
        for one in judged:
            self._tell(GateJudged(step.id, one.gate.metric, one.verdict, one.evidence))
        check.evidence = check.evidence.having({k: v for k, v in metrics.items() if k in FACTS})
        return {
            "verdict": _of_gates([one.verdict for one in judged], outcome.doubts),
            "gates": [one.to_dict() for one in judged],
            "metrics": {name: metrics.get(name) for name in step.type.metrics},
            "reason": "; ".join(filter(None, (*outcome.doubts, outcome.note))),
            "report": outcome.report,
        }


def _row(step: PlaybookStep) -> Row:
    return {
        "id": step.id,
        "kind": step.kind,
        "title": step.title,
        "verdict": INCONCLUSIVE,
        "reason": "",
        "gates": [],
        "metrics": {},
        "parameters": asdict(step.parameters),
        "report": None,
        "seconds": 0.0,
    }


def _of_gates(verdicts: Sequence[str], doubts: Sequence[str]) -> str:
    """Of a step that ran: what is not told counts neither way; without gates it has passed."""
    told = [verdict for verdict in verdicts if verdict != NOT_TOLD]
    if verdicts and not told and not doubts:
        return NOT_TOLD
    return worst([*told, *(INCONCLUSIVE for _ in doubts)]) if told or doubts else "pass"
