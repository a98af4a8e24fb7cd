"""How bursty arrivals were, beside a rate that changes from hour to hour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from playbooks.forecast.bursts import Bursts, GammaGaps, ResampledGaps

FINEST_S = 600.0
"""Counts of longer slots say more about how the rate moves than about bursts."""
LEAST_PAIRS = 24
LEAST_MEAN = 1.0
"""Requests in a slot; with fewer its spread is not known."""
CV_RANGE = (0.3, 20.0)
LEAST_GAPS, LEAST_RESAMPLED = 100, 1000
"""Arrivals from which a CV is known, and from which windows of them stand for the traffic."""
WINDOWS, WINDOW = 100, 500
"""Of a longer history so many windows are kept, of so many arrivals each."""
BIN_S, BIN_ARRIVALS = 3600.0, 500.0
"""A rate is taken as the same over an hour, or over so many arrivals if that is longer."""


def cv_of_counts(counts: Sequence[float | None], slot_s: float) -> float | None:
    """Of the gaps between arrivals: over many gaps, counts spread with their CV squared.

    From the differences of neighbours, so that a rate that rises is no burst. None: not known.
    """
    if slot_s > FINEST_S:
        return None
    values = np.array([np.nan if count is None else count for count in counts], float)
    means, differences = (values[1:] + values[:-1]) / 2, np.diff(values)
    known = means >= LEAST_MEAN
    if known.sum() < LEAST_PAIRS:
        return None
    spread = float(np.sum(differences[known] ** 2) / 2 / np.sum(means[known])) ** 0.5
    return float(np.clip(spread, *CV_RANGE))


def bursts_of(moments: np.ndarray) -> Bursts | None:
    """From arrival times in seconds, rising. None: too few to tell."""
    if len(moments) < LEAST_GAPS:
        return None
    even = _at_an_even_rate(moments)
    if len(even) >= LEAST_RESAMPLED:
        return ResampledGaps(tuple(_some(even).tolist()))
    gaps = np.diff(even)
    return GammaGaps(float(np.clip(gaps.std() / gaps.mean(), *CV_RANGE)))


def _some(even: np.ndarray) -> np.ndarray:
    """Windows from all over a long history, one behind the other, at the same rate of one."""
    if len(even) <= WINDOWS * WINDOW:
        return even
    begins = np.linspace(0, len(even) - WINDOW, WINDOWS)
    windows = [
        even[np.searchsorted(even, begin) : np.searchsorted(even, begin + WINDOW)] - begin
        for begin in begins
    ]
    joined = np.concatenate([window + i * WINDOW for i, window in enumerate(windows)])
    return joined * (len(joined) / (WINDOWS * WINDOW))


def _at_an_even_rate(moments: np.ndarray) -> np.ndarray:
    """The same arrivals in a time that runs as fast as they come on average: the first n of them
    take n."""
    span = moments[-1] - moments[0]
    width = max(BIN_S, BIN_ARRIVALS * span / len(moments))
    bins = max(int(span / width), 1)
    edges = np.linspace(moments[0], moments[-1], bins + 1)
    edges[-1] += span / len(moments)
    came = np.searchsorted(moments, edges)
    return np.interp(moments, edges, came.astype(float))
