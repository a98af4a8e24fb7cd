"""What a measurement proves: intervals, paired effects, slopes over time.

An effect is a relative change, after ÷ before − 1. It is estimated from pairs (the same
requests, before and after), because what a busy machine does to both arms then cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy import stats as scipy_stats

LEVEL = 0.95
RESAMPLES = 2000
BOOTSTRAP_LEAST = 8
"""Below so many numbers a bootstrap cannot be wider than their range; Student's t is honest."""
TOLERANCE = 0.03
"""A change within this, interval and all, is no difference that anybody would notice."""
P99_LEAST, P90_LEAST = 100, 10


@dataclass(frozen=True)
class Interval:
    """An estimate and where it lies with probability LEVEL. `n` numbers went into it."""

    estimate: float
    low: float
    high: float
    n: int

    def map(self, function: np.ufunc) -> Interval:
        """Through an increasing function."""
        return Interval(
            float(function(self.estimate)), float(function(self.low)), float(function(self.high)),
            self.n,
        )  # fmt: skip


def mean_interval(values: Sequence[float], seed: int = 0, level: float = LEVEL) -> Interval | None:
    """Of the mean: bootstrap (BCa), or Student's t for few values. None below two."""
    numbers = np.asarray(values, dtype=float)
    n = len(numbers)
    if n < 2:
        return None
    mean = float(numbers.mean())
    if np.ptp(numbers) == 0:
        return Interval(mean, mean, mean, n)
    if n < BOOTSTRAP_LEAST:
        error = scipy_stats.sem(numbers) * scipy_stats.t.ppf((1 + level) / 2, n - 1)
        return Interval(mean, mean - float(error), mean + float(error), n)
    found = scipy_stats.bootstrap(
        (numbers,), np.mean, confidence_level=level, n_resamples=RESAMPLES, method="BCa",
        rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return Interval(mean, float(found.low), float(found.high), n)


def positive_interval(values: Sequence[float], seed: int = 0) -> Interval | None:
    """Of the geometric mean of positive quantities: rates and times spread in proportion."""
    found = mean_interval([math.log(v) for v in values if v > 0], seed)
    return None if found is None else found.map(np.exp)


def common_noise(groups: Sequence[Sequence[float]], level: float = LEVEL) -> float:
    """How well a group's mean is known, relative, when all groups are equally noisy.

    The spread within the groups is pooled: three repeats say little about it, three repeats of
    each of seven points say enough. Infinite where no group has two numbers.
    """
    logs = [np.log(np.asarray(group, float)) for group in groups]
    freedom = sum(len(group) - 1 for group in logs)
    if freedom < 1:
        return math.inf
    variance = sum(float(((group - group.mean()) ** 2).sum()) for group in logs) / freedom
    fewest = min(map(len, logs))
    half = float(scipy_stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(variance / fewest)
    return math.expm1(half)


def paired_change(
    before: Sequence[float], after: Sequence[float], seed: int = 0
) -> Interval | None:
    """Relative change of positive quantities, one pair a repeat. None below two pairs."""
    logs = [math.log(b / a) for a, b in zip(before, after, strict=True) if a > 0 and b > 0]
    found = mean_interval(logs, seed)
    return None if found is None else found.map(np.expm1)


def quantile_change(
    before: Sequence[np.ndarray], after: Sequence[np.ndarray], q: float, seed: int = 0
) -> Interval | None:
    """Relative change of a quantile, from raw samples: one array a repeat, paired by request.

    Bootstrap in two levels, repeats and then the requests of each, so that neither a lucky
    repeat nor a lucky request carries it. Drawing R repeats of R shows only (R − 1)/R of the
    variance between them, so the interval is stretched by the root of the inverse. None where a
    quantile of so few is no quantile.
    """
    n = sum(map(len, before))
    if n < least_samples(q) or not len(before):
        return None
    rng, columns = (
        np.random.default_rng(seed),
        [np.stack(p) for p in zip(before, after, strict=True)],
    )
    changes = [_quantile_change(_resample(columns, rng), q) for _ in range(RESAMPLES)]
    ends = np.quantile(changes, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    estimate = _quantile_change(np.concatenate(columns, axis=1), q)
    stretch = math.sqrt(len(columns) / max(len(columns) - 1, 1))
    middle = math.log1p(estimate)
    low, high = np.expm1(middle + (np.log1p(ends) - middle) * stretch)
    return Interval(estimate, float(low), float(high), n)


def least_samples(q: float) -> int:
    """How many samples a quantile needs to mean anything."""
    return P99_LEAST if q >= 0.99 else P90_LEAST if q >= 0.9 else 2


def _resample(columns: list[np.ndarray], rng: Generator) -> np.ndarray:
    """[2, about as many]: repeats drawn with replacement, and requests within each."""
    picked = [columns[i] for i in rng.integers(len(columns), size=len(columns))]
    return np.concatenate([c[:, rng.integers(c.shape[1], size=c.shape[1])] for c in picked], axis=1)


def _quantile_change(pairs: np.ndarray, q: float) -> float:
    ordered = np.sort(pairs, axis=1)  # np.quantile's own value, at a third of its time
    at = q * (pairs.shape[1] - 1)
    low = ordered[:, int(at)]
    before, after = low + (ordered[:, math.ceil(at)] - low) * (at - int(at))
    return float(after / before - 1) if before else math.nan


def verdict(change: Interval | None, better: str, tolerance: float = TOLERANCE) -> str:
    """better | worse | no difference | inconclusive; `better` is higher or lower."""
    if change is None or math.isnan(change.low):
        return "inconclusive"
    if change.low <= 0 <= change.high:
        within = -tolerance <= change.low and change.high <= tolerance
        return "no difference" if within else "inconclusive"
    return "better" if (change.estimate > 0) == (better == "higher") else "worse"


def theil_sen(x: Sequence[float], y: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Slope of y over x by the median of all pairs' slopes; None below three points."""
    if len(x) < 3 or np.ptp(np.asarray(x, float)) == 0:
        return None
    found = scipy_stats.theilslopes(y, x, alpha=level)
    return Interval(float(found.slope), float(found.low_slope), float(found.high_slope), len(x))
