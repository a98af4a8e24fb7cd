"""Local times: clocks that are put forward skip an hour, and put back they show one twice."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from engine.errors import ConfigError

YEARS = (1970, 2199)
"""That a time may be of."""


def zone_of(name: str) -> tzinfo:
    """A time zone by its name, like Europe/Berlin. Raises ConfigError."""
    try:
        return UTC if name.upper() == "UTC" else ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise ConfigError(f"zone: {name!r} is no time zone known here ({error})") from None


def by_the_clock(text: str, zone: tzinfo, after: float = -math.inf) -> datetime:
    """A date or a time of ISO 8601, of `zone` where it has no offset; a time that there is twice
    is the first of them that lies after `after` (Unix seconds), else the second.

    Raises ValueError with the reason, also for a time that there never was.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no date of ISO 8601") from None
    if not YEARS[0] <= moment.year <= YEARS[1]:
        raise ValueError(f"{text} is not of the years {YEARS[0]} to {YEARS[1]}")
    if moment.tzinfo is not None:
        return moment.astimezone(zone)
    found = moment.replace(tzinfo=zone)
    if found.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != moment:
        raise ValueError(f"{text} is no time in {zone}: clocks are put forward over it")
    return found if found.timestamp() > after else found.replace(fold=1)
