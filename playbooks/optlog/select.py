"""Which records: by time, decision, metric and text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from engine.errors import ConfigError
from playbooks.optlog.record import DECISIONS, Record

_AGO = re.compile(r"(\d+)([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Selection:
    """Every condition that is given must hold. Raises ConfigError for an unknown decision."""

    since: datetime | None = None
    until: datetime | None = None
    decisions: tuple[str, ...] = ()
    metric: str | None = None
    """Part of the name of a metric, or of a setting that was changed."""
    text: str | None = None
    """Words that all occur somewhere in the record."""
    last: int | None = None
    """Of those that are left, so many of the newest."""

    def __post_init__(self) -> None:
        for name in self.decisions:
            if name not in DECISIONS:
                raise ConfigError(f"--decision: {name!r} is not one of {', '.join(DECISIONS)}")
        if self.last is not None and self.last < 1:
            raise ConfigError(f"--last: expected 1 at least, got {self.last}")

    def of(self, records: Sequence[Record]) -> list[Record]:
        found = [record for record in records if self._takes(record)]
        return found[-self.last :] if self.last is not None else found

    def _takes(self, record: Record) -> bool:
        if self.decisions and record.decision not in self.decisions:
            return False
        if (self.since or self.until) and not self._in_time(record.time):
            return False
        if self.metric is not None and not _touches(record, self.metric.lower()):
            return False
        return self.text is None or all(w in words(record) for w in self.text.lower().split())

    def _in_time(self, text: str) -> bool:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return False
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)


def _touches(record: Record, part: str) -> bool:
    names = [effect.metric for effect in record.effect] + [change.key for change in record.what]
    return any(part in name.lower() for name in names)


def words(record: Record) -> str:
    """All that a search by text looks at, in lower case."""
    parts = [record.id, record.title, record.why, record.operator or "", record.rollback]
    parts += [f"{c.key} {c.before} {c.after}" for c in record.what]
    parts += [f"{e.metric} {e.verdict}" for e in record.effect]
    parts += [*record.problems, *record.artifacts, record.decision, record.claim]
    parts += [f"{key} {value}" for key, value in record.how.items()]
    return "\n".join(parts).lower()


def moment(text: str | None, option: str, end: bool = False) -> datetime | None:
    """ "2026-09-30", "2026-09-30T18:00", "36h", "7d" -> a time; what has no zone is UTC.

    `end`: a day alone means its end. Raises ConfigError.
    """
    if text is None:
        return None
    if match := _AGO.fullmatch(text):
        try:
            return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option}: {text!r} is no time; write it like 2026-09-30, 2026-09-30T18:00 or 7d"
        ) from None
    if end and re.fullmatch(r"\d{4}-?\d\d-?\d\d", text):
        at += timedelta(days=1) - timedelta(microseconds=1)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
