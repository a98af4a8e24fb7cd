"""From a history and a calendar to an outlook: the usual week with the days that are unlike it, and
by how much an earlier forecast would have been off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, time, timedelta

import numpy as np
from scipy.stats import norm

from engine.errors import ConfigError
from playbooks.forecast.bursts import Bursts, GammaGaps
from playbooks.forecast.calendar import DAYS, Calendar, Special
from playbooks.forecast.history.history import HOUR_S, History, Hours, hours_of_week
from playbooks.forecast.outlook import Outlook
from playbooks.forecast.sizes import PresetSizes, Sizes
from playbooks.forecast.weekly import DAY, WEEK, learn, left_out_errors, past_errors, widening
from playbooks.load.mix import PRESETS

ASSUMED_ERROR = 0.2
"""Of a day's level, as a logarithm, where the history is too short to tell."""
ASSUMED_PATHS = 8
MOST_ERROR = math.log(10)
"""Of an hour, as a logarithm: a history whose level jumps says no more than that."""
LEAST_ORIGINS = 4
MOST_DAYS = 62.0


def make_outlook(
    history: History,
    calendar: Calendar | None = None,
    start: datetime | None = None,
    days: float = 1.0,
    sizes: Sizes | None = None,
    bursts: Bursts | None = None,
) -> Outlook:
    """Of `days` by the calendar's clocks from `start` on, by default the next midnight.

    `sizes` and `bursts` stand before those of the history. Raises ConfigError.
    """
    calendar = calendar or Calendar()
    end = history.end
    midnight = _next_midnight(end, calendar)
    hours = history.hours(midnight.timestamp())
    start = start.astimezone(calendar.zone) if start else midnight
    count = _count(start, days)
    lead = int((start - end) / timedelta(hours=1))
    if start < end:
        ends = end.astimezone(calendar.zone)
        raise ConfigError(f"start: {start:%F %H:%M} is before the history's end, {ends:%F %H:%M}")
    learner = _Learner(history, hours, calendar)
    notes = learner.notes
    rates, specials = learner.rates(start, count, lead)
    bursts = bursts or history.bursts
    if bursts is None:
        bursts = GammaGaps()
        notes.append("the history does not show how bursty arrivals are: they are taken as Poisson")
    errors = learner.past_errors(start, count, lead)
    if errors is None:
        errors = _assumed_errors(count)
        notes.append(
            "the history is too short to show how far off a forecast from it is: the level is "
            f"taken to be off by {ASSUMED_ERROR:.0%} (one standard deviation)"
        )
    else:
        errors = _without_chance(errors, rates, bursts)
        if np.abs(errors).max() > MOST_ERROR:
            errors = np.clip(errors, -MOST_ERROR, MOST_ERROR)
            notes.append(
                "some forecasts from earlier parts of the history are off by more than a factor of "
                f"{math.exp(MOST_ERROR):.0f}: taken as {math.exp(MOST_ERROR):.0f}"
            )
    usual = sizes or history.sizes
    if usual is None:
        usual = PresetSizes(PRESETS["chat"])
        notes.append("the history has no lengths: those of `chat` are taken")
    return Outlook(
        start, rates, errors, tuple(_sizes(special, usual) for special in specials), bursts,
        history.block_tokens,
        tuple(tuple(special.name for special in those) for those in specials),
        *learner.naive(start, count), tuple(notes),
    )  # fmt: skip


def _next_midnight(end: datetime, calendar: Calendar) -> datetime:
    local = end.astimezone(calendar.zone)
    midnight = datetime.combine(local.date(), time(), calendar.zone)
    return midnight if midnight == local else midnight + timedelta(days=1)


def _count(start: datetime, days: float) -> int:
    """Hours of so many days by the clock: one on which it is changed has 23 or 25."""
    if not 0 < days <= MOST_DAYS:
        raise ConfigError(f"days: expected above 0 and up to {MOST_DAYS:g}, got {days:g}")
    seconds = (start + timedelta(days=days)).timestamp() - start.timestamp()
    return max(round(seconds / HOUR_S), 1)


def _sizes(specials: Sequence[Special], usual: Sizes) -> Sizes:
    """A campaign's own before a holiday's before the usual ones."""
    return next((one.sizes for one in reversed(specials) if one.sizes is not None), usual)


def _assumed_errors(count: int) -> np.ndarray:
    """float [n, count]: a level that is off by ASSUMED_ERROR."""
    spread = norm.ppf((np.arange(ASSUMED_PATHS) + 0.5) / ASSUMED_PATHS / 2 + 0.5)
    return ASSUMED_ERROR * np.repeat(spread[:, None], count, axis=1)


def _without_chance(errors: np.ndarray, rates: np.ndarray, bursts: Bursts) -> np.ndarray:
    """Past errors hold the chance of the arrivals that came; the arrivals that will be drawn bring
    their own."""
    chance = float(np.mean(bursts.dispersion / np.maximum(rates * HOUR_S, 1.0)))
    whole = float(np.mean(errors**2))
    return errors * math.sqrt(max(1 - chance / whole, 0.0)) if whole > 0 else errors


class _Learner:
    """The usual week of a history, and how the calendar's days were and will be unlike it."""

    def __init__(self, history: History, hours: Hours, calendar: Calendar) -> None:
        self._hours, self._calendar = hours, calendar
        self._labels = hours_of_week(hours.start, len(hours.rates), calendar.zone)
        unlike = [bool(calendar.at(m)) for m in _middles(hours.start, len(hours.rates))]
        self._usual = np.where(unlike, np.nan, hours.rates)
        if np.isnan(self._usual).all():
            raise ConfigError(
                f"{calendar.path}: the history is all holidays and campaigns; nothing usual is left"
            )
        self._week = learn(self._usual, self._labels, calendar.weekend)
        self.notes = [*history.assumptions, *self._assumptions(history)]

    def rates(
        self, start: datetime, count: int, lead: int
    ) -> tuple[np.ndarray, list[list[Special]]]:
        """Requests/s of hours that begin `lead` hours after the history, and what is special."""
        labels = hours_of_week(start, count, self._calendar.zone)
        specials = [self._calendar.at(moment) for moment in _middles(start, count)]
        rates = self._week.ahead(_alike(labels, specials), lead)
        self.notes += _not_on_the_hour(start, specials)
        factors = {one: self._factor(one) for those in specials for one in those}
        of_hours = [math.prod(factors[one] for one in those) for those in specials]
        return rates * np.array(of_hours), specials

    def _factor(self, special: Special) -> float:
        if special.factor is not None:
            return special.factor
        learnt = self._learnt(special)
        if learnt is not None:
            return learnt
        if special.like is not None:
            return 1.0
        raise ConfigError(
            f"{self._calendar.path}:{special.line}: {special.kind} {special.name!r} has no factor, "
            "and the history holds no earlier one of this name; give a factor"
        )

    def _learnt(self, special: Special) -> float | None:
        """What earlier times of this name had over what was usual then."""
        moments = _middles(self._hours.start, len(self._hours.rates))
        earlier = self._calendar.before(special)
        inside = np.array([any(one.holds(moment) for one in earlier) for moment in moments])
        labels = self._labels if special.like is None else special.like * DAY + self._labels % DAY
        usual = self._week.then(labels, len(labels))
        inside &= ~np.isnan(self._hours.rates) & (usual > 0)
        if not inside.any():
            return None
        return float(self._hours.rates[inside].sum() / usual[inside].sum())

    def past_errors(self, start: datetime, count: int, lead: int) -> np.ndarray | None:
        """float [n, count]; None: the history is too short for any."""
        horizon = min(lead + count, WEEK)
        weekend = self._calendar.weekend
        for reach in sorted({horizon, min(horizon, DAY)}, reverse=True):
            found = past_errors(self._usual, self._labels, weekend, reach)
            if len(found) >= LEAST_ORIGINS:
                places = lead + np.arange(count)
                # What lies beyond is off like the same hour of the last day that was tried.
                tried = np.where(places < reach, places, reach - DAY + (places - reach) % DAY)
                known = _filled(found)
                return (known * widening(known))[:, tried]
        found = left_out_errors(self._usual, self._labels, weekend)
        if len(found) < LEAST_ORIGINS:
            return None
        self.notes.append(
            "the history is too short for forecasts from earlier parts of it: days left out of it "
            "show how far off this one may be"
        )
        return (found * widening(found))[:, hours_of_week(start, count, self._calendar.zone) % DAY]

    def naive(self, start: datetime, count: int) -> tuple[float, np.ndarray]:
        """The two forecasts that cost nothing: the last value, and the same hour last week."""
        known = self._hours.rates[~np.isnan(self._hours.rates)]
        found = []
        for moment in _middles(start, count):
            local = datetime.fromtimestamp(moment, self._calendar.zone)
            weeks = range(1, len(self._hours.rates) // WEEK + 2 + count // WEEK)
            before = (self._hours.at((local - timedelta(weeks=n)).timestamp()) for n in weeks)
            found.append(next((rate for rate in before if not math.isnan(rate)), math.nan))
        return float(known[-1]), np.array(found)

    def _assumptions(self, history: History) -> list[str]:
        notes, week = [], self._week
        if history.slot_s > HOUR_S:
            notes.append(f"counts are {history.slot_s / HOUR_S:g} hours apart: even within them")
        if week.unseen_hours:
            notes.append(
                f"{week.unseen_hours} of 24 hours of the day are not in the history: they are "
                "taken as the mean of those that are"
            )
        if 0 < len(week.unseen_days) < 7:
            names = ", ".join(DAYS[day].capitalize() for day in sorted(week.unseen_days))
            notes.append(f"the history has no usual {names}: taken as the days of their kind")
        if week.outliers:
            notes.append(
                f"{week.outliers} hours of the history were unlike others of their kind; they are "
                "left out"
            )
        if week.trend:
            notes.append(f"the level goes on to change by {math.expm1(week.trend):+.1%} a week")
        return notes


def _middles(start: datetime, count: int) -> list[float]:
    """Unix times of the middles of hours."""
    begin = start.timestamp() + HOUR_S / 2
    return [begin + i * HOUR_S for i in range(count)]


def _not_on_the_hour(start: datetime, specials: Sequence[Sequence[Special]]) -> list[str]:
    begin = start.timestamp()
    return [
        f"{one.kind} {one.name!r} does not begin and end on the hour: it has the hours whose "
        "middle it holds"
        for one in dict.fromkeys(one for those in specials for one in those)
        if (one.begin - begin) % HOUR_S or (one.end - begin) % HOUR_S
    ]


def _alike(labels: np.ndarray, specials: Sequence[Sequence[Special]]) -> np.ndarray:
    """Hours of the week, of the day that the calendar says an hour is like."""
    found = labels.copy()
    for i, those in enumerate(specials):
        for one in those:
            if one.like is not None:
                found[i] = one.like * DAY + labels[i] % DAY
    return found


def _filled(errors: np.ndarray) -> np.ndarray:
    """Hours of which nothing is known, by the others of their path."""
    with np.errstate(all="ignore"):
        rows = np.nan_to_num(np.nanmean(errors, axis=1, keepdims=True))
    return np.where(np.isnan(errors), rows, errors)
