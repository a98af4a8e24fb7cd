"""The rules of a canary: pure functions from evidence to a call, and from calls to an action.

A rule says `pass` only on evidence. What is not known yet is `hold`, and a hold never lets a
candidate advance. `roll_back` takes proof at an alpha divided over all looks there may be, so
that looking often does not find something in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from playbooks.canary.evidence import CanaryEvidence, GaugeSeries, Probes
from playbooks.canary.plan import HIGH_ALPHA, CanaryPlan
from playbooks.canary.router import BASELINE, CANDIDATE
from playbooks.quality import limits
from playbooks.statistics.intervals import theil_sen
from playbooks.statistics.quantile_ratio import least_for_bound, quantile_ratio

MEMORY_WINDOWS = 20
"""Low-water marks that a slope is drawn through; fewer cannot prove anything at such an alpha."""
PROBE_ALPHA, PROBE_DOUBT = 0.01, 0.1
"""More changed answers than the baseline: proof, and what is worth asking again."""


class RuleVerdict(StrEnum):
    PASS = "pass"
    HOLD = "hold"
    ROLL_BACK = "roll_back"
    WAIVED = "waived"


class CanaryAction(StrEnum):
    ADVANCE = "advance"
    HOLD = "hold"
    ROLL_BACK = "roll_back"
    INCONCLUSIVE = "inconclusive"
    """Held for too long: all traffic goes back to the baseline."""


@dataclass(frozen=True)
class Ruling:
    rule: str
    call: RuleVerdict
    why: str
    numbers: dict[str, Any] = field(default_factory=dict)


def judge(evidence: CanaryEvidence, plan: CanaryPlan) -> list[Ruling]:
    """Every rule on what is known now."""
    return [
        faults_rule(evidence.faults, plan),
        error_rule(evidence.errors(BASELINE), evidence.errors(CANDIDATE), plan),
        tail_rule(*evidence.tails(plan.metric), plan),
        _unless_waived(memory_rule(list(evidence.memory.values()), plan), plan),
        _unless_waived(crosstalk_rule(evidence.probes[BASELINE], evidence.probes[CANDIDATE]), plan),
        _unless_waived(quality_rule(evidence), plan),
    ]


def decide(rulings: Sequence[Ruling], ripe: bool, expired: bool) -> CanaryAction:
    """`ripe`: the stage has had its least time; `expired`: it must not go on any longer."""
    calls = {ruling.call for ruling in rulings}
    if RuleVerdict.ROLL_BACK in calls:
        return CanaryAction.ROLL_BACK
    if RuleVerdict.HOLD not in calls and ripe:
        return CanaryAction.ADVANCE
    return CanaryAction.INCONCLUSIVE if expired else CanaryAction.HOLD


def _unless_waived(ruling: Ruling, plan: CanaryPlan) -> Ruling:
    """What is waived may be missing; what it does show counts all the same."""
    if ruling.rule in plan.waive and ruling.call is RuleVerdict.HOLD:
        return Ruling(ruling.rule, RuleVerdict.WAIVED, f"waived; {ruling.why}", ruling.numbers)
    return ruling


# --- errors -------------------------------------------------------------------------------


def faults_rule(faults: int, plan: CanaryPlan) -> Ruling:
    """A few faults of the engine itself end it, without statistics."""
    call = RuleVerdict.ROLL_BACK if faults >= plan.faults else RuleVerdict.PASS
    why = f"{faults} engine faults, {plan.faults} are too many"
    return Ruling("faults", call, why, {"faults": faults, "limit": plan.faults})


def fisher(base: tuple[int, int], candidate: tuple[int, int]) -> float:
    """One-sided: the chance of so many of the failures, or more, on the candidate if both are
    alike. Each side is (failed, all); Fisher's exact test, from the hypergeometric tail."""
    failed, total = base[0] + candidate[0], base[1] + candidate[1]
    return float(hypergeom.sf(candidate[0] - 1, total, failed, candidate[1]))


def error_rule(base: tuple[int, int], candidate: tuple[int, int], plan: CanaryPlan) -> Ruling:
    """Each side is (failed, all)."""
    rates = [failed / total if total else None for failed, total in (base, candidate)]
    numbers = {"baseline": rates[0], "candidate": rates[1], "n": candidate[1], "p": None}
    if rates[0] is None or rates[1] is None:
        return Ruling("errors", RuleVerdict.HOLD, "no request has ended on both sides", numbers)
    delta = rates[1] - rates[0]
    shown = f"{rates[1]:.2%} of {candidate[1]} failed, of the baseline's {rates[0]:.2%}"
    if delta > plan.error_delta:
        p = numbers["p"] = fisher(base, candidate)
        if p < plan.look_alpha:
            return Ruling("errors", RuleVerdict.ROLL_BACK, f"{shown}; p {p:.2g}", numbers)
        return Ruling("errors", RuleVerdict.HOLD, f"{shown}; p {p:.2g} proves nothing", numbers)
    few = min(candidate[1], base[1])
    if few < plan.min_samples:
        told = f"{few} of {plan.min_samples:d} requests"
        return Ruling("errors", RuleVerdict.HOLD, "; ".join((shown, told)), numbers)
    return Ruling("errors", RuleVerdict.PASS, shown, numbers)


# --- latency ------------------------------------------------------------------------------


def tail_rule(base: np.ndarray, candidate: np.ndarray, plan: CanaryPlan) -> Ruling:
    """The P99 of the candidate over the baseline's: proved too high, proved not, or neither."""
    rule, name = "tail", f"P{plan.tail * 100:.0f} {plan.metric}"
    n = min(len(base), len(candidate))
    least = max(plan.min_samples, least_for_bound(plan.tail, HIGH_ALPHA))
    if n < least:
        numbers: dict[str, Any] = {"ratio": None, "low": None, "high": None, "n": n}
        return Ruling(rule, RuleVerdict.HOLD, f"{name}: {n} of {least} answers", numbers)
    found = quantile_ratio(base, candidate, plan.tail, plan.look_alpha, HIGH_ALPHA)
    numbers = {"ratio": found.estimate, "low": found.low, "high": found.high, "n": n}
    shown = f"{name} {found.estimate:.2f} of the baseline's ({found.low:.2f} … {found.high:.2f})"
    if found.low > plan.tail_ratio:
        return Ruling(rule, RuleVerdict.ROLL_BACK, f"{shown}, above {plan.tail_ratio:g}", numbers)
    if found.high > plan.tail_ratio:
        return Ruling(rule, RuleVerdict.HOLD, f"{shown} straddles {plan.tail_ratio:g}", numbers)
    return Ruling(rule, RuleVerdict.PASS, shown, numbers)


# --- memory -------------------------------------------------------------------------------


def memory_rule(series: Sequence[GaugeSeries], plan: CanaryPlan) -> Ruling:
    """The worst of all gauges: does one grow, and run out before the horizon?"""
    if not series:
        return Ruling("memory", RuleVerdict.HOLD, "the candidate shows no memory numbers")
    rulings = [_gauge_ruling(one, plan) for one in series]
    for call in (RuleVerdict.ROLL_BACK, RuleVerdict.HOLD):
        for ruling in rulings:
            if ruling.call is call:
                return ruling
    return max(rulings, key=lambda r: r.numbers["slope_per_s"] or 0.0)


def _gauge_ruling(series: GaugeSeries, plan: CanaryPlan) -> Ruling:
    numbers: dict[str, Any] = {"gauge": series.name, "slope_per_s": None, "runs_out_s": None}
    marks = low_water(series)
    if marks is None:
        points = len(series.values)
        why = f"{series.name}: {points} readings are too few for a slope"
        return Ruling("memory", RuleVerdict.HOLD, why, numbers)
    slope = theil_sen(*marks, level=1 - 2 * plan.look_alpha)
    assert slope is not None
    numbers["slope_per_s"] = slope.estimate
    if slope.low <= 0:
        return Ruling("memory", RuleVerdict.PASS, f"{series.name} does not grow", numbers)
    left = series.limit - series.values[-1]
    runs_out = numbers["runs_out_s"] = max(left / slope.estimate, 0.0)
    hours, grows = runs_out / 3600, slope.estimate * 3600
    rate = f"{grows / 2**20:,.1f} MiB/h" if series.unit == "B" else f"{grows:.1%} {series.unit}/h"
    left_h = f"{hours:,.0f} h" if hours >= 10 else f"{hours:.1f} h"
    why = f"{series.name} grows by {rate} and {f'runs out in {left_h}' if hours else 'has run out'}"
    call = RuleVerdict.ROLL_BACK if runs_out < plan.scaled(plan.horizon_s) else RuleVerdict.PASS
    return Ruling("memory", call, why, numbers)


def low_water(series: GaugeSeries) -> tuple[list[float], list[float]] | None:
    """Times and lowest values of MEMORY_WINDOWS windows of as many readings, over the newest half.

    What requests come and go with stands above the low-water mark, a leak lifts it; and the
    older half, where things warm up, does not count. An exact gauge has nothing to warm up: all
    of it counts. None while there are too few readings.
    """
    at, values = np.asarray(series.at_s), np.asarray(series.values)
    if not series.exact and len(at):
        newest = at >= (at[0] + at[-1]) / 2
        at, values = at[newest], values[newest]
    if len(at) < MEMORY_WINDOWS or at[-1] <= at[0]:
        return None
    windows = zip(
        np.array_split(at, MEMORY_WINDOWS), np.array_split(values, MEMORY_WINDOWS), strict=True
    )
    times, lows = zip(*((float(t.mean()), float(v.min())) for t, v in windows), strict=True)
    return list(times), list(lows)


# --- what it says -------------------------------------------------------------------------


def crosstalk_rule(base: Probes, candidate: Probes) -> Ruling:
    """Marked prompts amid traffic must come out as they do alone.

    Rounding may flip a tie on either side, so changed answers are held against the baseline's;
    somebody else's mark has no excuse.
    """
    numbers: dict[str, Any] = {
        "asked": candidate.asked, "differing": candidate.differing, "mixed": candidate.mixed,
        "baseline_differing": base.differing, "p": None,
    }  # fmt: skip
    if not candidate.asked or not base.asked:
        failed = f"; {candidate.failed} have failed" if candidate.failed else ""
        why = f"no marked prompt has been answered{failed}"
        return Ruling("crosstalk", RuleVerdict.HOLD, why, numbers)
    if candidate.mixed > base.mixed:
        why = f"{candidate.mixed} of {candidate.asked} answers have another client's mark"
        return Ruling("crosstalk", RuleVerdict.ROLL_BACK, why, numbers)
    shown = (
        f"{candidate.differing} of {candidate.asked} marked answers change in company, "
        f"of the baseline's {base.differing} of {base.asked}"
    )
    p = fisher((base.differing, base.asked), (candidate.differing, candidate.asked))
    numbers["p"] = p
    if p < PROBE_ALPHA:
        return Ruling("crosstalk", RuleVerdict.ROLL_BACK, f"{shown}; p {p:.2g}", numbers)
    return Ruling(
        "crosstalk", RuleVerdict.HOLD if p < PROBE_DOUBT else RuleVerdict.PASS, shown, numbers
    )


def quality_rule(evidence: CanaryEvidence) -> Ruling:
    found = evidence.quality
    if found is None:
        return Ruling("quality", RuleVerdict.HOLD, "not measured")
    calls = {limits.FAIL: RuleVerdict.ROLL_BACK, limits.INCONCLUSIVE: RuleVerdict.HOLD}
    why = "; ".join(found.reasons) or f"golden answers: {found.verdict}"
    numbers = {gate["metric"]: gate["value"] for gate in found.gates}
    return Ruling("quality", calls.get(found.verdict, RuleVerdict.PASS), why, numbers)
