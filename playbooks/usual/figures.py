"""Figures of a run, and how much worse they are than in the last healthy ones. Pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from playbooks.diagnosis import Deviation, Usual

FEW, FEW_LIMIT = 3, 0.25
"""With fewer runs their spread is not known: more than this is no chance."""
LEAST_LIMIT = 0.10
SPREADS = 1.5
"""Times the farthest of the healthy runs from their median."""
RATES = ("output_tok_s", "peak_tok_s")
TIMES = ("ttft_p50_ms", "tpot_p50_ms", "e2e_p50_ms", "step_ms")
FAULTS = {"error_rate": 0.02, "mean_kld": 0.002, "passkey_misses": 4.0}
"""What should be 0, and how much of it is the least that a share is taken of."""
Figures = Mapping[str, float]


def figures_of(steps: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """STEP.METRIC of a report's steps, as far as they are known."""
    found = {}
    for row in steps:
        for name in (*RATES, *TIMES, *FAULTS):
            value = row["metrics"].get(name)
            if isinstance(value, int | float) and math.isfinite(value):
                found[f"{row['id']}.{name}"] = float(value)
    return found


def beside(now: Figures, healthy: Sequence[Figures], lost: float = 0.0) -> Usual | None:
    """None without a healthy run. `lost`: of the machine, what this run did not get; that much
    slower is the machine's affair and not the engine's.

    Speed is one thing with many figures: their middle one decides. Faults are judged each.
    """
    if not healthy:
        return None
    speed: list[tuple[Deviation, float]] = []
    faults: list[tuple[Deviation, float]] = []
    for name, value in now.items():
        past = [figures[name] for figures in healthy if name in figures]
        if not past:
            continue
        usual = statistics.median(past)
        one = Deviation(name, value, usual, _worse(name, value, usual))
        far = max(abs(_worse(name, before, usual)) for before in past)
        limit = FEW_LIMIT if len(past) < FEW else max(SPREADS * far, LEAST_LIMIT)
        (faults if _metric(name) in FAULTS else speed).append((one, limit))
    limit = statistics.median(limit for _, limit in speed) if speed else FEW_LIMIT
    allowed = 1 - (1 - min(limit, 1.0)) * (1 - lost)
    slow = bool(speed) and statistics.median(one.worse for one, _ in speed) > allowed
    return Usual(
        len(healthy),
        allowed,
        tuple(one for one, _ in speed) if slow else (),
        tuple(one for one, limit in faults if one.worse > limit),
    )


def better(a: Figures, b: Figures) -> dict[str, float]:
    """Of a figure that was measured twice, the better one: a disturbance only makes it worse."""
    best = dict(a)
    for name, value in b.items():
        if name in best and _metric(name) not in FAULTS:
            best[name] = (max if _metric(name) in RATES else min)(best[name], value)
    return best


def _metric(name: str) -> str:
    return name.partition(".")[2]


def _worse(name: str, value: float, usual: float) -> float:
    """Of speed, the share that is lost (.5: half as fast); of faults, the share that is added."""
    metric = _metric(name)
    if metric in FAULTS:
        return (value - usual) / max(usual, FAULTS[metric])
    slow, fast = (usual, value) if metric in RATES else (value, usual)
    return 1 - fast / slow if slow > 0 else 0.0
