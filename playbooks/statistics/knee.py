"""Where a curve of throughput over size bends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from playbooks.statistics.intervals import LEVEL, common_noise

DOUBLING_GAIN = 0.15
"""The knee: the last size whose doubling still gains so much."""
CAP_SHARE = 0.75
"""Of the knee is the recommended cap: room for bursts (the owner's knee was 64, his cap 48)."""
TAIL_SLOPE = 0.25
"""A curve has bent when it rises no more than this share of its first slope."""
NOISE = 0.15
"""Throughput known no better than this hides the gain that is looked for."""
LEAST_POINTS = 4
DRAWS = 200


@dataclass(frozen=True)
class Bend:
    """Two lines that meet at `at`: throughput per unit of batch before and after."""

    at: float
    head: float
    tail: float

    @property
    def ratio(self) -> float:
        """Tail slope over head slope: 1 is a straight line, 0 a plateau."""
        return self.tail / self.head if self.head > 0 else math.inf


def doubling_gain(sizes: Sequence[float], values: Sequence[float], size: ArrayLike) -> np.ndarray:
    """What twice each `size` gains, read off the curve between measured sizes (log-log)."""
    x, y, at = np.log2(sizes), np.log(values), np.log2(size)
    gain: np.ndarray = np.expm1(np.interp(at + 1, x, y) - np.interp(at, x, y))
    return gain


def pooled(sizes: Sequence[float], values: Sequence[float]) -> list[float]:
    """The curve whose doublings gain ever less, as a queue's do: where a later stretch gains more
    than the one before, both gain what they gain together (pool adjacent violators)."""
    x, y = np.log2(sizes), np.log(values)
    stretches: list[tuple[float, float]] = []  # width and rise
    for width, rise in zip(np.diff(x), np.diff(y), strict=True):
        while stretches and stretches[-1][1] / stretches[-1][0] < rise / width:
            before = stretches.pop()
            width, rise = width + before[0], rise + before[1]
        stretches.append((width, rise))
    ends = np.cumsum([(0.0, 0.0), *stretches], axis=0)
    return [float(value) for value in values[0] * np.exp(np.interp(x - x[0], *ends.T))]


def knee(
    sizes: Sequence[float], values: Sequence[float], gain: float = DOUBLING_GAIN
) -> int | None:
    """The last whole size whose doubling still gains `gain`, from rising sizes.

    None when the largest size that could be doubled still gains so much: the curve has not
    bent yet. The first size when not even doubling that is worth it.
    """
    first, last = math.ceil(sizes[0]), int(sizes[-1] // 2)
    tried = np.arange(first, last + 1)
    worth = tried[doubling_gain(sizes, values, tried) >= gain]
    if not len(worth):
        return first
    return int(worth[-1]) if worth[-1] < last else None


def segmented_fit(sizes: Sequence[float], values: Sequence[float]) -> Bend | None:
    """The continuous pair of lines with the least squared error; None below four points.

    Errors are relative, so that the large values do not decide alone.
    """
    x, y = np.asarray(sizes, float), np.asarray(values, float)
    if len(x) < 4:
        return None
    fits = [_two_lines(x, y, at) for at in np.geomspace(x[1], x[-2], 200)]
    return min(fits, key=lambda fit: fit[0])[1]


def _two_lines(x: np.ndarray, y: np.ndarray, at: float) -> tuple[float, Bend]:
    basis = np.stack([np.ones_like(x), np.minimum(x, at), np.maximum(x - at, 0)], axis=1)
    weights = 1 / np.maximum(y, 1e-12)
    coefficients, *_ = np.linalg.lstsq(basis * weights[:, None], y * weights, rcond=None)
    error = float((((basis @ coefficients - y) * weights) ** 2).sum())
    return error, Bend(float(at), float(coefficients[1]), float(coefficients[2]))


@dataclass(frozen=True)
class KneeVerdict:
    knee: int | None = None
    reason: str = ""
    """Why there is none."""
    bend: Bend | None = None
    low: int | None = None
    high: int | None = None
    """Where it lies in eight of ten such measurements, whose middle one is `knee`; no `high`:
    beyond what was measured."""

    @property
    def text(self) -> str:
        """ "knee 12", and how far it is known where that is not within a half."""
        assert self.knee is not None
        if self.low is None or (self.high is not None and self.high <= 1.5 * self.low):
            return f"knee {self.knee}"
        most = f"to {self.high}" if self.high is not None else "or more"
        return f"knee {self.knee} ({self.low} {most}, by the repeats)"


def judge_knee(
    sizes: Sequence[int], rates: Sequence[Sequence[float]], lost: Sequence[float]
) -> KneeVerdict:
    """The knee, where the numbers support one: `rates` are the repeats of each size, `lost` what
    the machine took from each at worst."""
    if len(sizes) < LEAST_POINTS:
        return KneeVerdict(None, f"{len(sizes)} points count, {LEAST_POINTS} are needed")
    uneven = max(lost) - min(lost)
    if uneven > NOISE:
        return KneeVerdict(
            None,
            f"the machine took {uneven:.0%} more from some points than from others, and a knee is "
            f"a matter of {DOUBLING_GAIN:.0%}: measure again when it is quiet",
        )
    noise = common_noise(rates)
    if noise > NOISE:
        known = f"{noise:.0%}" if noise < 10 else "an order of magnitude"
        return KneeVerdict(
            None,
            f"too noisy: throughput is known within {known} only, and a knee is a matter of "
            f"{DOUBLING_GAIN:.0%}",
        )
    means = [float(np.exp(np.mean(np.log(row)))) for row in rates]
    found = _where_it_bends(sizes, means)
    if found.knee is None:
        return found
    low, middle, high = _range(sizes, means, noise)
    return replace(found, knee=middle or found.knee, low=low, high=high)


def _range(
    sizes: Sequence[int], means: Sequence[float], noise: float
) -> tuple[int, int | None, int | None]:
    """Of eight of ten knees of curves like this one, each mean known within `noise`, and the middle
    one. None: beyond what was measured."""
    chance = np.random.default_rng(0)
    spread = math.log1p(noise) / norm.ppf((1 + LEVEL) / 2)
    found = []
    for shifts in chance.normal(0.0, spread, (DRAWS, len(means))):
        one = knee(sizes, pooled(sizes, means * np.exp(shifts)))
        found.append(math.inf if one is None else one)
    low, middle, high = (
        int(q) if math.isfinite(q) else None
        for q in np.quantile(found, [0.1, 0.5, 0.9], method="nearest")
    )
    return low or sizes[-1], middle, high


def _where_it_bends(sizes: Sequence[int], values: Sequence[float]) -> KneeVerdict:
    even = pooled(sizes, values)
    bend, found = segmented_fit(sizes, values), knee(sizes, even)
    if found is None:
        gain = even[-1] / even[-2] - 1
        return KneeVerdict(
            None,
            f"no knee up to batch {sizes[-1]}: from {sizes[-2]} to {sizes[-1]} it still gains "
            f"{gain:.0%}; go on with larger batches",
            bend,
        )
    assert bend is not None, "enough points were asked for"
    if bend.ratio > TAIL_SLOPE:
        return KneeVerdict(
            None,
            f"the two rules disagree: doubling stops to pay at {found}, and yet the curve's tail "
            f"rises with {bend.ratio:.0%} of its first slope (a bend is {TAIL_SLOPE:.0%} or less)",
            bend,
        )
    return KneeVerdict(found, "", bend)
