"""From what a command or a playbook says of the coming traffic to an outlook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from pathlib import Path

from engine.errors import ConfigError
from playbooks.forecast.bursts import GammaGaps
from playbooks.forecast.calendar import Calendar, read_calendar
from playbooks.forecast.clocks import by_the_clock, zone_of
from playbooks.forecast.expectation import make_outlook
from playbooks.forecast.history.burstiness import CV_RANGE
from playbooks.forecast.history.history import History
from playbooks.forecast.history.read import read_history
from playbooks.forecast.outlook import Outlook
from playbooks.forecast.sizes import PresetSizes
from playbooks.load.mix import parse_mix

ReadHistory = Callable[[Path, tzinfo], History]


@dataclass(frozen=True)
class TrafficAsked:
    history: Path
    """Counts, an answer of Prometheus, a trace; a recording where `read` takes one."""
    calendar: Path | None = None
    zone: str | None = None
    """Whose clocks, where no calendar says it."""
    start: str | None = None
    """A time of ISO 8601; None: the midnight after the history."""
    days: float = 1.0
    lengths: str | None = None
    """As of `load --lengths`, in place of the history's."""
    cv: float | None = None
    """Burstiness, in place of the history's."""
    scale: float = 1.0
    """All rates, times this."""


def outlook_of(asked: TrafficAsked, read: ReadHistory = read_history) -> Outlook:
    """Raises ConfigError in one line for whatever is wrong with what was said or with a file."""
    calendar = _calendar(asked)
    if asked.cv is not None and not CV_RANGE[0] <= asked.cv <= CV_RANGE[1]:
        low, high = CV_RANGE
        raise ConfigError(f"cv: expected {low:g} to {high:g}, got {asked.cv:g}")
    if not 1e-3 <= asked.scale <= 1e3:
        raise ConfigError(f"scale: expected a factor from 0.001 to 1000, got {asked.scale:g}")
    outlook = make_outlook(
        read(asked.history, calendar.zone),
        calendar,
        _start(asked, calendar.zone),
        asked.days,
        None if asked.lengths is None else PresetSizes(parse_mix(asked.lengths)),
        None if asked.cv is None else GammaGaps(asked.cv),
    )
    return outlook if asked.scale == 1 else replace(outlook, rates=outlook.rates * asked.scale)


def _calendar(asked: TrafficAsked) -> Calendar:
    if asked.calendar is None:
        return Calendar(zone_of(asked.zone or "UTC"))
    if asked.zone is not None:
        raise ConfigError(f"zone: {asked.calendar} says it; leave it out, or write it there")
    return read_calendar(asked.calendar)


def _start(asked: TrafficAsked, zone: tzinfo) -> datetime | None:
    if asked.start is None:
        return None
    try:
        return by_the_clock(asked.start, zone)
    except ValueError as error:
        raise ConfigError(f"start: {error}") from None
