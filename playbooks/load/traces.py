"""Traces of real traffic, as recorded by others or by `load --jsonl`.

A trace is read while it is replayed, in bounded memory, whatever its size. Rows come in order
of time: a window of REORDER rows puts right what is a little out of order. A row that comes
later than that, is malformed, or has no length is left out and counted, and too many of those
end the reading with an error that names the first one's line.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, RequestError
from playbooks.load import formats
from playbooks.load.formats import CountTokens, TraceRow
from playbooks.load.units import SAMPLE, TimeUnit, judge

REORDER = 4096
"""Rows that are held to bring them into order."""
BAD_ALLOWED, BAD_SHARE = 10, 0.01
"""So many unusable rows are left out without complaint, and this share of all on top."""


@dataclass
class TraceReport:
    """What one pass over a file met."""

    rows: int = 0
    used: int = 0
    malformed: int = 0
    """Unusable, left out: see `first_problem`."""
    failed: int = 0
    """Rows without output: requests that failed when they were recorded. Left out."""
    out_of_order: int = 0
    """Put into order."""
    same_time: int = 0
    """At exactly the time of the row before: sent together."""
    first_problem: str | None = None


class Trace:
    """Raises ConfigError at once if the file has no usable row, and while reading if too many
    rows are unusable.

    `count_tokens` measures texts, for formats that have texts and no lengths.
    """

    def __init__(
        self, path: Path, count_tokens: CountTokens | None = None, unit: str | None = None
    ) -> None:
        self.path = path
        self.estimated = count_tokens is None
        self._format = formats.detect(path, count_tokens)
        self.report = TraceReport()
        """Of the latest pass, up to where it has come."""
        self.unit = self._unit(unit)
        """Of its times."""
        next(self.rows())

    def _unit(self, told: str | None) -> TimeUnit:
        documented = self._format.unit
        if told is not None and documented is None:
            raise ConfigError(f"--time-unit: {self.path} has no times, or they say their unit")
        if told is not None or documented is None:
            return TimeUnit(told or "s")
        first = itertools.islice(self._usable(TraceReport()), SAMPLE)
        return judge([row.at_s for row in first if row.at_s is not None], documented)

    @property
    def format(self) -> str:
        return self._format.name

    @property
    def block_tokens(self) -> int | None:
        """Of each of a row's blocks; None where it has none."""
        return self._format.block_tokens

    @property
    def has_times(self) -> bool:
        return self._format.has_times

    def rows(self) -> Iterator[TraceRow]:
        """All usable rows, from the first one, in order of time."""
        self.report = report = TraceReport()
        usable = self._usable(report)
        factor = self.unit.seconds
        for row in self._in_order(usable, report) if self.has_times else usable:
            report.used += 1
            yield row if row.at_s is None else row._replace(at_s=row.at_s * factor)
        if not report.used:
            problem = f"; {report.first_problem}" if report.first_problem else ""
            raise ConfigError(f"trace {self.path}: has no usable row{problem}")

    def describe(self) -> dict[str, Any]:
        return {
            "file": str(self.path),
            "format": self.format,
            "time_unit": self.unit.name if self.has_times else None,
            **asdict(self.report),
        }

    def _usable(self, report: TraceReport) -> Iterator[TraceRow]:
        for line, raw in self._format.raw_rows(self.path):
            report.rows += 1
            try:
                row = self._parse(raw)
            except ValueError as error:
                self._bad(report, f"line {line}: {error}")
                continue
            if row.output == 0:
                report.failed += 1
                continue
            yield row

    def _parse(self, raw: Any) -> TraceRow:
        """ValueError with the reason when the row is unusable."""
        if raw is None:
            raise ValueError("cannot be read")
        try:
            return self._format.row(raw)
        except KeyError as error:
            raise ValueError(f"has no {error}") from error
        except (TypeError, AttributeError, LookupError, RequestError) as error:
            raise ValueError("is of another form") from error

    def _bad(self, report: TraceReport, problem: str) -> None:
        report.malformed += 1
        report.first_problem = report.first_problem or problem
        if report.malformed > BAD_ALLOWED + BAD_SHARE * report.rows:
            raise ConfigError(
                f"trace {self.path}: {report.malformed} of {report.rows} rows are unusable; "
                f"the first: {report.first_problem}"
            )

    def _in_order(self, rows: Iterator[TraceRow], report: TraceReport) -> Iterator[TraceRow]:
        """Sorted by time within a window; rows of the same time stay in the file's order."""
        held: list[tuple[float, int, TraceRow]] = []
        newest, given = -math.inf, -math.inf
        for row in rows:
            at = row.at_s if row.at_s is not None else newest
            if at < given:
                self._bad(report, f"row {report.rows}: more than {REORDER} rows out of order; sort")
                continue
            report.out_of_order += at < newest
            report.same_time += at == newest
            newest = max(newest, at)
            heapq.heappush(held, (at, report.rows, row))
            if len(held) > REORDER:
                given, _, first = heapq.heappop(held)
                yield first
        while held:
            yield heapq.heappop(held)[2]
