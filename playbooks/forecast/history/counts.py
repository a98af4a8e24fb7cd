"""A CSV of counts: a time and how many requests came from then on, in each line.

time,requests                          (also: count, calls, value; or rate, rps: requests/s)
2026-10-24 00:00,1840
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from engine.errors import ConfigError
from playbooks.forecast.clocks import by_the_clock
from playbooks.forecast.history.history import EARLIEST, LATEST, History
from playbooks.forecast.history.slots import Slots, put_together
from playbooks.load.lines import lines_of

TIMES = (
    "time", "timestamp", "date", "datetime", "hour", "day", "start", "begin", "from", "bucket",
    "ds", "ts",
)  # fmt: skip
COUNTS = ("requests", "request", "count", "counts", "calls", "value", "total", "hits", "n", "y")
RATES = ("rate", "rps", "qps", "requestspersecond", "requestss", "requestspers")
FORMS = "time,requests (also: count, calls, value; or rate, rps for requests/s)"
_OFFSET = re.compile(r"(Z|UTC|GMT|[+-]\d\d:?\d\d)$")
_DATE = re.compile(r"(19|20|21)\d{6}")
_GROUPED = re.compile(r"\d{1,3}(\.\d{3})+")
"""Thousands, where decimals have a comma."""
MILLISECONDS = 1e11
"""Unix times from here on are in milliseconds."""


@dataclass(frozen=True)
class Columns:
    mark: str
    count: int
    time: int
    value: int
    is_rate: bool

    @classmethod
    def of(cls, header: str) -> Columns | None:
        """None where this is no such file."""
        mark = max(",;\t", key=header.count)
        names = [
            re.sub(r"[\W_]", "", n).lower() for n in next(csv.reader([header], delimiter=mark))
        ]
        time = next((i for i, name in enumerate(names) if name in TIMES), None)
        value = next((i for i, name in enumerate(names) if name in COUNTS + RATES), None)
        if time is None or value is None:
            return None
        return cls(mark, len(names), time, value, names[value] in RATES)


def read_counts(path: Path, zone: tzinfo) -> History:
    """Times without an offset are by the clocks of `zone`. Raises ConfigError with the line."""
    lines = lines_of(path)
    columns = Columns.of(next(lines)[1] or "")
    if columns is None:
        raise ConfigError(f"history {path}: no columns of counts; it reads {FORMS}")
    reader = _Reader(path, columns, zone)
    for number, line in lines:
        reader.take(number, line)
    return put_together(
        Slots(str(path), reader.moments, reader.values, columns.is_rate, reader.lines),
        reader.assumptions,
    )


class _Reader:
    """Rows in order of time; a clock that is put back is told apart from a disorder."""

    def __init__(self, path: Path, columns: Columns, zone: tzinfo) -> None:
        self._path, self._columns, self._zone = path, columns, zone
        self._naive = False
        self._grouped = ""
        """A count that may have been meant as thousands."""
        self.moments: list[float] = []
        """Unix seconds."""
        self.values: list[float | None] = []
        self.lines: list[int] = []

    @property
    def assumptions(self) -> list[str]:
        notes = []
        if self._naive:
            notes.append(f"times without an offset are by the clocks of {self._zone}")
        if self._grouped:
            value = float(self._grouped)
            notes.append(f"{self._grouped!r} is taken as {value:g} requests, not as thousands")
        return notes

    def take(self, number: int, line: str | None) -> None:
        columns, fields = self._columns, self._fields(number, line)
        moment = self._moment(number, fields[columns.time].strip())
        if self.moments and moment <= self.moments[-1]:
            same = "the same time as" if moment == self.moments[-1] else "a time before that of"
            raise self._wrong(number, f"has {same} line {self.lines[-1]}; sort it, each time once")
        self.moments.append(moment)
        self.values.append(self._value(number, fields[columns.value].strip()))
        self.lines.append(number)

    def _fields(self, number: int, line: str | None) -> list[str]:
        columns = self._columns
        try:
            fields = next(csv.reader([] if line is None else [line], delimiter=columns.mark))
        except (csv.Error, StopIteration):
            raise self._wrong(number, "cannot be read") from None
        if len(fields) <= max(columns.time, columns.value) or any(fields[columns.count :]):
            raise self._wrong(
                number,
                f"has {len(fields)} fields, the first line {columns.count}; numbers are written "
                "like 1840 or 0.5",
            )
        return fields

    def _moment(self, number: int, text: str) -> float:
        try:
            counted = math.nan if _DATE.fullmatch(text) else float(text)
        except ValueError:
            counted = math.nan
        if math.isnan(counted):
            return self._clock(number, text)
        seconds = counted / 1e3 if counted >= MILLISECONDS else counted
        if not EARLIEST <= seconds <= LATEST:
            raise self._wrong(number, f"time {text!r} is no date and no time in Unix seconds")
        return seconds

    def _clock(self, number: int, text: str) -> float:
        self._naive |= _OFFSET.search(text) is None
        last = self.moments[-1] if self.moments else -math.inf
        try:
            return by_the_clock(
                re.sub(r"\s*(UTC|GMT)$", "+00:00", text), self._zone, last
            ).timestamp()
        except ValueError as error:
            raise self._wrong(number, f"time {error}") from None

    def _value(self, number: int, text: str) -> float | None:
        if not text or text.lower() in ("nan", "null", "na", "none"):
            return None
        try:
            value = float(text)
        except ValueError:
            raise self._wrong(number, f"{text[:20]!r} is no number like 1840 or 0.5") from None
        if not 0 <= value < math.inf:
            raise self._wrong(number, f"{text} requests: a count is 0 or more")
        if self._columns.mark == ";" and not self._columns.is_rate and _GROUPED.fullmatch(text):
            self._grouped = self._grouped or text
        return value

    def _wrong(self, number: int, what: str) -> ConfigError:
        return ConfigError(f"history {self._path}:{number}: {what}")
