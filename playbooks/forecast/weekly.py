"""The usual week: a rate for each hour of it, its level now, and how far off it was in the past.

An hour's rate is the week's level times the hour's share. A share is the mean over the weeks, drawn
towards what days of its kind (of work, of the weekend) have at that hour: of one week alone an
hour is known badly, and five days of work know it better together. What forecasts made from earlier
parts of the same history would have been off by is the measure of what this one may be off by.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm, t

from playbooks.statistics.intervals import theil_sen

DAY, WEEK = 24, 168
"""Hours."""
HALF_LIFE = 4.0
"""Weeks; a week so much older says half as much about shares."""
OWN = 1.0
"""Weeks of an hour that say as much about its share as the days of its kind together."""
NEWEST = 0.5
"""Share of the newest week in the level; of the others, the same share of what is left."""
LEAST_FOR_TREND, LEAST_FOR_OUTLIERS = 4, 3
"""Weeks."""
OUTLIER, OUTLIER_SPREADS = 2.0, 5.0
"""An hour off by this factor, and by so many usual deviations, is left out."""
ROUNDS = 8
MOST_ORIGINS = 60
HALF_COUNT = 0.5 / 3600
"""Requests/s, added on both sides of a ratio: an hour may have none."""


@dataclass(frozen=True)
class Week:
    shares: np.ndarray
    """float [WEEK], mean 1."""
    levels: np.ndarray
    """float [weeks]: requests/s of each week of the history, the newest first; NaN: not known."""
    level: float
    """Requests/s of the week that comes."""
    trend: float
    """Growth of its logarithm a week; 0 unless it is proven."""
    outliers: int
    """Hours that were left out."""
    unseen_days: frozenset[int]
    unseen_hours: int
    """Of the day, in no day at all: they are taken as the mean of those that were."""

    def ahead(self, labels: np.ndarray, first: int = 0) -> np.ndarray:
        """Requests/s of hours whose hours of the week are `labels`, from `first` hours after the
        history on."""
        weeks = np.clip((first + np.arange(len(labels))) / WEEK - 0.5, 0, None)
        return self.level * np.exp(self.trend * weeks) * self.shares[labels]

    def then(self, labels: np.ndarray, count: int) -> np.ndarray:
        """The same for the last `count` hours of the history, at the level of their time."""
        return self.levels[_weeks_back(count)] * self.shares[labels]


def learn(rates: np.ndarray, labels: np.ndarray, weekend: Set[int]) -> Week:
    """From rates by the hour (NaN: not known) and their hours of the week."""
    back, outliers = _weeks_back(len(rates)), 0
    weights = np.where(np.isnan(rates), 0.0, 0.5 ** (back / HALF_LIFE))
    shares, levels = _product(rates, weights, labels, WEEK, back)
    if levels.size >= LEAST_FOR_OUTLIERS:
        unlike = _unlike(rates, shares[labels] * levels[back])
        outliers = int(unlike.sum())
        if outliers:
            weights = np.where(unlike, 0.0, weights)
            shares, levels = _product(rates, weights, labels, WEEK, back)
    seen = np.bincount(labels, weights, WEEK)
    by_kind = _by_kind(shares, seen, weekend)
    own = seen / (seen + OWN)
    mixed = np.where(np.isnan(shares), by_kind, own * np.nan_to_num(shares) + (1 - own) * by_kind)
    scale = mixed.mean() or 1.0
    level, trend = _level(levels * scale)
    days = seen.reshape(7, DAY)
    return Week(
        mixed / scale, levels * scale, level, trend, outliers,
        frozenset(np.flatnonzero(days.sum(axis=1) == 0).tolist()),
        int((days.sum(axis=0) == 0).sum()),
    )  # fmt: skip


def past_errors(
    rates: np.ndarray, labels: np.ndarray, weekend: Set[int], horizon: int
) -> np.ndarray:
    """float [origins, horizon]: logarithms of actual over expected, had the forecast been made a
    day, two days … before, from a week at least; NaN where not known."""
    found = []
    for origin in range(len(rates) - horizon, WEEK - 1, -DAY)[:MOST_ORIGINS]:
        if np.isnan(rates[:origin]).mean() > 0.5:
            break
        ahead = slice(origin, origin + horizon)
        expected = learn(rates[:origin], labels[:origin], weekend).ahead(labels[ahead])
        found.append(np.log((rates[ahead] + HALF_COUNT) / (expected + HALF_COUNT)))
    return np.array(found).reshape(len(found), horizon)


def left_out_errors(rates: np.ndarray, labels: np.ndarray, weekend: Set[int]) -> np.ndarray:
    """float [days, DAY]: the same for whole days, each left out of what is learnt from; for a
    history of which no forecast could have been made. Days whose kind has no other are no use."""
    days = np.cumsum(np.diff(labels // DAY, prepend=labels[0] // DAY) != 0)
    of_weekend = np.isin(labels // DAY, sorted(weekend))
    found = []
    for day in range(int(days[-1]) + 1):
        inside = (days == day) & ~np.isnan(rates)
        others = (days != day) & ~np.isnan(rates)
        if inside.sum() < DAY or not (others & (of_weekend == of_weekend[inside][0])).any():
            continue
        week = learn(np.where(inside, np.nan, rates), labels, weekend)
        expected = week.then(labels, len(labels))[inside]
        if np.isnan(expected).any():  # it was all that its week had
            continue
        found.append(np.log((rates[inside] + HALF_COUNT) / (expected + HALF_COUNT))[:DAY])
    return np.array(found).reshape(len(found), DAY)


def widening(errors: np.ndarray) -> float:
    """What such errors (float [origins, horizon], none NaN) are to be multiplied with, as few of
    them are a poor measure: Student's quantile over the normal one, at 80 %.

    Forecasts made a day apart are off alike; how much so says how many there are in truth.
    """
    days = -(-errors.shape[1] // DAY)
    means = np.stack([errors[:, d * DAY : (d + 1) * DAY].mean(axis=1) for d in range(days)], axis=1)
    whole = float((means**2).sum())
    alike = float((means[1:] * means[:-1]).sum()) / whole if whole else 0.0
    alike = min(max(alike, 0.0), 0.95)
    independent = max(len(errors) * (1 - alike) / (1 + alike), 1.0)
    return float(t.ppf(0.9, independent) / norm.ppf(0.9))


def _weeks_back(count: int) -> np.ndarray:
    """int [count]: which week before the end each of the last hours is in, the newest being 0."""
    return (count - 1 - np.arange(count)) // WEEK


def _product(
    values: np.ndarray, weights: np.ndarray, columns: np.ndarray, width: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values as column × row: [width] of mean 1 (NaN: never seen) and [rows]. By turns, sums over
    sums, as suits counts."""
    known = weights > 0
    value, weight = values[known], weights[known]
    column, row = columns[known], rows[known]
    height = int(rows.max()) + 1
    by_row = np.ones(height)
    for _ in range(ROUNDS):
        by_column = _over(column, weight * value, weight * by_row[row], width)
        by_row = _over(row, weight * value, weight * by_column[column], height)
    known_columns, known_rows = (
        np.bincount(places, minlength=size) > 0 for places, size in ((column, width), (row, height))
    )
    scale = float(by_column[known_columns].mean()) if len(value) else 1.0
    return (
        np.where(known_columns, by_column / (scale or 1.0), np.nan),
        np.where(known_rows, by_row * scale, np.nan),
    )


def _over(places: np.ndarray, values: np.ndarray, expected: np.ndarray, size: int) -> np.ndarray:
    """float [size]: the values of each place over what was expected there; of nothing, 0."""
    whole = np.bincount(places, expected, size)
    return np.divide(np.bincount(places, values, size), whole, out=np.zeros(size), where=whole > 0)


def _unlike(rates: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """bool: hours far from what is usual for them: an outage, a day that nobody told of."""
    off = np.log((rates + HALF_COUNT) / (expected + HALF_COUNT))
    usual = 1.4826 * float(np.nanmedian(np.abs(off)))
    found: np.ndarray = np.abs(off) > max(np.log(OUTLIER), OUTLIER_SPREADS * usual)
    return found


def _by_kind(shares: np.ndarray, seen: np.ndarray, weekend: Set[int]) -> np.ndarray:
    """float [WEEK]: what an hour has by the shape of its kind of day and the size of its day."""
    days = np.arange(WEEK) // DAY
    found = np.full(WEEK, np.nan)
    whole, sizes = _product(shares, seen, np.arange(WEEK) % DAY, DAY, days)
    for kind in (sorted(weekend), [day for day in range(7) if day not in weekend]):
        inside = np.isin(days, kind) & (seen > 0)
        if not inside.any():
            continue
        shape, size = _product(
            shares, np.where(inside, seen, 0.0), np.arange(WEEK) % DAY, DAY, days
        )
        shape = np.where(np.isnan(shape), whole, shape)
        size = np.where(np.isnan(size), np.nanmean(size), size)
        for day in kind:
            found[day * DAY : (day + 1) * DAY] = shape * size[day]
    empty = np.isnan(found)
    size = np.where(np.isnan(sizes), np.nanmean(sizes), sizes)
    found[empty] = (np.where(np.isnan(whole), 1.0, whole)[np.arange(WEEK) % DAY] * size[days])[
        empty
    ]
    return found


def _level(levels: np.ndarray) -> tuple[float, float]:
    """Of the week that comes, and its growth. `levels`: the newest first."""
    known = np.flatnonzero(~np.isnan(levels))
    weights = (1 - NEWEST) ** known
    level = float(np.sum(weights * levels[known]) / weights.sum())
    positive = known[levels[known] > 0]
    if len(positive) < LEAST_FOR_TREND:
        return level, 0.0
    logs = np.log(levels[positive])
    slope = theil_sen((-positive).tolist(), logs.tolist())
    if slope is None or slope.low <= 0 <= slope.high:
        return level, 0.0
    now = float(np.median(logs + slope.estimate * positive))
    return float(np.exp(now + slope.estimate)), slope.estimate
