"""From measured steps to what a step costs: non-negative least squares, and how far it is off.

Cost of tokens is a curve with its knots at round numbers: each stretch between two knots has a
rise of its own, none below 0. So is everything else that a step does. The error that is made
small is relative: a short step counts as much as a long one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from engine.errors import EngineError
from engine.simulated.fitted import RUN, SLOT_NS, CostCoefficients
from engine.simulated.work import StepWork
from playbooks.forecast.fit_file import HeldOut
from playbooks.forecast.step_log import StepLog

KNOTS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 1024,
         2048, 4096, 8192, 16384)  # fmt: skip
LEAST_MEASURED = 200
"""A fit from fewer steps says nothing."""
LEAST_STEPS = 12
"""Measured steps that a stretch of the curve needs to have a rise of its own."""
ROUNDS = 6
OUTLIER = 0.25
"""A step that is off by more (a share) counts less: it was somebody else's doing."""
SLOTS = 8000
"""Of the slots, at most so many are kept to draw from."""
LEAST_RATE = 1e-3
"""Of a step that took more than a thousand times what it should, the rest is left out."""
LEAST_DRIFT = 0.005
"""No machine is steadier than that."""
_TOKENS = StepWork._fields.index("tokens")
_LINEAR = [StepWork._fields.index(name) for name in ("rows", "context", "chunk_context", "sealed")]


class StepTimes(NamedTuple):
    """How long steps take, and how well that is known: fields of a Fit."""

    cost: CostCoefficients
    slowness: tuple[float, ...]
    drift: float
    held_out: HeldOut


def step_times(log: StepLog) -> StepTimes:
    """Raises EngineError for too few steps."""
    if len(log.ns) < LEAST_MEASURED:
        raise EngineError(
            f"{len(log.ns)} steps were measured and a fit needs {LEAST_MEASURED}: give it a longer "
            "--duration"
        )
    works, ns = log.work, np.array(log.ns, dtype=float)
    errors = cross_validate(works, ns, np.array(log.blocks), np.array(log.rounds))
    cost = fit_cost(works, ns)
    return StepTimes(cost, slowness_of(ns, predict(cost, works)), errors.drift, errors.held_out)


def fit_cost(works: np.ndarray, ns: np.ndarray) -> CostCoefficients:
    """`works` float [steps, fields of StepWork], `ns` float [steps]."""
    knots = _knots(works[:, _TOKENS])
    matrix = _design(works, knots)
    weights = 1 / ns
    found = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        found = _non_negative(matrix * weights[:, None], ns * weights)
        fitted = np.maximum(matrix @ found, 1.0)
        off = np.abs(ns / fitted - 1)
        weights = np.sqrt(np.minimum(1.0, OUTLIER / np.maximum(off, 1e-9))) / fitted
    # What outliers took was time all the same: all steps together take what they took.
    fitted = matrix @ found
    found *= ns.sum() / fitted.sum()
    rises, linear = found[: len(knots)], found[len(knots) :]
    curve = zip(knots, np.cumsum(rises).tolist(), strict=True)
    return CostCoefficients(tuple(curve), *linear.tolist())


def predict(cost: CostCoefficients, works: np.ndarray) -> np.ndarray:
    """float [steps] in ns."""
    at, values = zip(*cost.tokens, strict=True)
    fitted = np.interp(works[:, _TOKENS], at, values)
    if len(at) > 1:
        beyond = np.maximum(works[:, _TOKENS] - at[-1], 0)
        fitted = fitted + beyond * (values[-1] - values[-2]) / (at[-1] - at[-2])
    linear = np.array([cost.row, cost.context, cost.chunk_context, cost.sealed])
    return np.asarray(fitted + works[:, _LINEAR] @ linear)


@dataclass(frozen=True)
class Errors:
    """Of predictions of steps that the fit has not seen."""

    held_out: HeldOut
    drift: float
    """Standard deviation of how fast a block was against its prediction (a share)."""


def cross_validate(
    works: np.ndarray, ns: np.ndarray, blocks: np.ndarray, folds: np.ndarray
) -> Errors:
    """Each fold (int [steps]) is predicted by a fit of the others."""
    fitted = np.empty_like(ns)
    for fold in np.unique(folds):
        inside = folds == fold
        fitted[inside] = predict(fit_cost(works[~inside], ns[~inside]), works[inside])
    off = np.abs(fitted / ns - 1)
    totals = np.array(
        [fitted[blocks == b].sum() / ns[blocks == b].sum() for b in np.unique(blocks)]
    )
    totals = np.maximum(totals, 1e-3)  # a fold without steps of the kind predicts nothing of it
    worst = float(totals[np.argmax(np.abs(np.log(totals)))] - 1)
    held_out = HeldOut(
        steps=len(ns),
        p50=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        total=float(fitted.sum() / ns.sum() - 1),
        worst_block=worst,
    )
    drift = float(np.sqrt(np.mean(np.log(totals) ** 2)))
    return Errors(held_out, max(drift, LEAST_DRIFT))


def slowness_of(ns: np.ndarray, fitted: np.ndarray) -> tuple[float, ...]:
    """Measured over fitted time, slot by slot, of steps one after another (both float [steps],
    ns); of many slots, runs from all over. Their harmonic mean is 1: work takes, all in all,
    what was fitted."""
    count = max(1, int(ns.sum() / SLOT_NS))
    edges = np.linspace(0, ns.sum(), count + 1)
    done = np.interp(edges, [0, *np.cumsum(ns)], [0, *np.cumsum(fitted)])
    rates = np.maximum(np.diff(done) / np.diff(edges), LEAST_RATE)
    if count > SLOTS:
        starts = np.linspace(0, count - RUN, SLOTS // RUN).astype(int)
        rates = np.concatenate([rates[start : start + RUN] for start in starts])
    return tuple(np.round(rates.mean() / rates, 4).tolist())


def _knots(tokens: np.ndarray) -> list[int]:
    """Of KNOTS, the first and those that enough steps lie between."""
    knots, last = [KNOTS[0]], KNOTS[0]
    for knot in KNOTS[1:]:
        between = (tokens > last) & (tokens <= knot)
        if between.sum() >= LEAST_STEPS:
            knots.append(knot)
            last = knot
    return knots


def _design(works: np.ndarray, knots: list[int]) -> np.ndarray:
    """float [steps, knots + 4]: 1, how much of each stretch the tokens fill, and the rest."""
    tokens = works[:, _TOKENS]
    columns = [np.ones(len(tokens))]
    for i in range(1, len(knots)):
        share = (tokens - knots[i - 1]) / (knots[i] - knots[i - 1])
        columns.append(np.clip(share, 0, None if i == len(knots) - 1 else 1))
    return np.column_stack([*columns, works[:, _LINEAR]])


def _non_negative(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(matrix / scale, values, maxiter=50 * matrix.shape[1])
    return np.asarray(found / scale)
