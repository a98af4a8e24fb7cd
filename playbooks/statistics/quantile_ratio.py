"""How far one side's tail is above the other's: the bootstrap of a ratio of quantiles, exactly.

Drawing n of n samples with replacement, the k-th smallest of the draw is one of the samples,
and how likely each is follows from the order statistics of uniform numbers: the place of the
k-th of n is Beta(k, n − k + 1). So nothing need be drawn: the bootstrap's distribution of the
ratio is the product of two short lists of samples with known weights. It has no seed, and its
far tails, where an alpha divided over many looks lies, are as good as its middle.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc

from playbooks.statistics.intervals import Interval

NEGLIGIBLE = 1e-9
"""Samples less likely than this to be the quantile are left out."""
REACH = 10
"""Standard deviations from the quantile's place, beyond which no sample need be looked at."""


def quantile_ratio(
    base: np.ndarray, other: np.ndarray, q: float, low_alpha: float, high_alpha: float
) -> Interval:
    """`other`'s quantile over `base`'s, both float [n > 0] of positive numbers.

    The ratio is below `low` with probability `low_alpha`, above `high` with `high_alpha`; each
    is one-sided. `n` of the interval is that of the smaller side.
    """
    (x, wx), (y, wy) = _distribution(base, q), _distribution(other, q)
    ratios = (y[:, None] / x[None, :]).ravel()
    order = np.argsort(ratios)
    below = np.cumsum((wy[:, None] * wx[None, :]).ravel()[order])
    below /= below[-1]
    low = ratios[order[np.searchsorted(below, low_alpha)]]
    high = ratios[order[np.searchsorted(below, 1 - high_alpha)]]
    estimate = _quantile(other, q) / _quantile(base, q)
    return Interval(estimate, float(low), float(high), min(len(base), len(other)))


def least_for_bound(q: float, alpha: float) -> int:
    """Samples below which not even the largest is an upper bound of the quantile."""
    return math.ceil(math.log(alpha) / math.log(q))


def _quantile(values: np.ndarray, q: float) -> float:
    return float(np.quantile(values, q, method="inverted_cdf"))


def _distribution(values: np.ndarray, q: float) -> tuple[np.ndarray, np.ndarray]:
    """Samples that can be the quantile of a bootstrap draw, and how likely each is."""
    n = len(values)
    k = max(math.ceil(q * n), 1)
    reach = REACH * math.sqrt(n * q * (1 - q)) + REACH
    first, last = max(int(k - reach), 0), min(int(k + reach), n)
    weights = np.diff(betainc(k, n - k + 1, np.arange(first, last + 1) / n))
    keep = weights > NEGLIGIBLE
    return np.sort(values)[first:last][keep], weights[keep]
