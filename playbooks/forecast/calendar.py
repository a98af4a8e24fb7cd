"""The days that are unlike others: holidays and campaigns, from a TOML file.

zone = "Europe/Berlin"                  # whose clocks and weeks; UTC by default

[[holiday]]
name = "Christmas"
date = "2026-12-25"                     # or begin = "2026-12-24 14:00", end = "2026-12-27"
like = "sunday"                         # its hours are those of a Sunday …
factor = 0.8                            # … times this; without it, learnt from an earlier one

[[campaign]]
name = "New year's offer"
begin = "2026-12-31 18:00"
end = "2026-12-31 23:00"
factor = 2.5
lengths = "lognormal:400,120"           # what its requests are like, as of `load --lengths`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Gt, Le

from checklists.tomlfile import STRICT, Location, TomlFile
from engine.errors import ConfigError
from playbooks.forecast.clocks import by_the_clock, zone_of
from playbooks.forecast.sizes import PresetSizes
from playbooks.load.mix import parse_mix

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
Factor = Annotated[float, Gt(0), Le(1000)]


@dataclass(frozen=True)
class DayEntry:
    """One [[holiday]] or [[campaign]] as it stands in the file."""

    __pydantic_config__ = STRICT

    name: str
    date: str | None = None
    begin: str | None = None
    end: str | None = None
    """The first moment that is no longer in it."""
    factor: Factor | None = None
    like: Day | None = None
    lengths: str | None = None

    def __post_init__(self) -> None:
        if self.date is None and (self.begin is None or self.end is None):
            raise ConfigError(f"name: {self.name!r} has no date, and no begin and end")
        if self.date is not None and (self.begin is not None or self.end is not None):
            raise ConfigError("date: stands for the whole day; leave out begin and end")


@dataclass(frozen=True)
class CalendarFile:
    __pydantic_config__ = STRICT

    zone: str = "UTC"
    weekend: tuple[Day, ...] = ("saturday", "sunday")
    holiday: tuple[DayEntry, ...] = ()
    campaign: tuple[DayEntry, ...] = ()


@dataclass(frozen=True)
class Special:
    """A time that is unlike others."""

    kind: str
    """holiday | campaign"""
    name: str
    begin: float
    end: float
    """Unix seconds."""
    factor: float | None
    """None: to be learnt from an earlier time of this name."""
    like: int | None
    """Day of the week, Monday being 0, whose hours it has."""
    sizes: PresetSizes | None
    line: int

    def holds(self, moment: float) -> bool:
        return self.begin <= moment < self.end


@dataclass(frozen=True)
class Calendar:
    zone: tzinfo = UTC
    weekend: frozenset[int] = frozenset({5, 6})
    """Days of the week, Monday being 0."""
    specials: tuple[Special, ...] = ()
    path: Path | None = None

    def at(self, moment: float) -> list[Special]:
        """What holds at that Unix time: a holiday at most, then a campaign at most."""
        found = [special for special in self.specials if special.holds(moment)]
        return sorted(found, key=lambda special: special.kind == "campaign")

    def before(self, special: Special) -> list[Special]:
        """Earlier times of the same name."""
        same = (special.kind, special.name)
        return [
            other
            for other in self.specials
            if (other.kind, other.name) == same and other.end <= special.begin
        ]


def read_calendar(path: Path) -> Calendar:
    """Raises ConfigError with the file, the line and what is wrong."""
    file = TomlFile(path, "calendar")
    content = file.read(CalendarFile)
    reader = _Reader(file, _zone(file, content.zone))
    specials = sorted(reader.specials(content), key=lambda special: special.begin)
    for kind in ("holiday", "campaign"):
        _refuse_overlaps(path, [special for special in specials if special.kind == kind])
    weekend = frozenset(DAYS.index(day) for day in content.weekend)
    return Calendar(reader.zone, weekend, tuple(specials), path)


def _zone(file: TomlFile, name: str) -> tzinfo:
    try:
        return zone_of(name)
    except ConfigError as error:
        raise file.wrong(("zone",), str(error)) from None


def _refuse_overlaps(path: Path, specials: Sequence[Special]) -> None:
    for before, after in pairwise(specials):
        if after.begin < before.end:
            raise ConfigError(
                f"{path}:{after.line}: {after.kind} {after.name!r} overlaps {before.name!r} of "
                f"line {before.line}; end one where the other begins"
            )


@dataclass(frozen=True)
class _Reader:
    file: TomlFile
    zone: tzinfo

    def specials(self, content: CalendarFile) -> Iterator[Special]:
        for kind, entries in (("holiday", content.holiday), ("campaign", content.campaign)):
            for index, entry in enumerate(entries):
                yield self._special(kind, (kind, index), entry)

    def _special(self, kind: str, at: Location, entry: DayEntry) -> Special:
        if entry.date is not None:
            first = self._moment((*at, "date"), entry.date)
            begin, end = first, first + timedelta(days=1)  # by the clock: 23 to 25 hours
        else:
            begin = self._moment((*at, "begin"), str(entry.begin))
            end = self._moment((*at, "end"), str(entry.end))
        if end.timestamp() <= begin.timestamp():
            raise self.file.wrong((*at, "end"), f"end: {entry.end} is not after {entry.begin}")
        sizes = None
        if entry.lengths is not None:
            try:
                sizes = PresetSizes(parse_mix(entry.lengths))
            except ConfigError as error:
                raise self.file.wrong((*at, "lengths"), str(error)) from None
        like = None if entry.like is None else DAYS.index(entry.like)
        return Special(
            kind, entry.name, begin.timestamp(), end.timestamp(), entry.factor, like, sizes,
            self.file.line((*at, "name")),
        )  # fmt: skip

    def _moment(self, at: Location, text: str) -> datetime:
        try:
            moment = by_the_clock(text, self.zone)
        except ValueError as error:
            raise self.file.wrong(at, f"{at[-1]}: {error}") from None
        if at[-1] == "date" and moment.time() != time():
            raise self.file.wrong(at, f"date: {text!r} is no whole day; use begin and end")
        return moment
