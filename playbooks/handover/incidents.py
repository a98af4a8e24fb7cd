"""Incidents: onsets and recoveries of alerts as the log has them, and what was done meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from playbooks.alerts.keeper import FIRING
from playbooks.optlog.record import Change, Record
from playbooks.reports.document import text_of


@dataclass(frozen=True)
class Incident:
    """One alert at one target."""

    rule: str
    target: str
    severity: str
    words: str
    """What the rule is about."""
    text: str
    """What it says to do."""
    began: float
    """Unix s, as `ended`."""
    ended: float | None
    """None: no recovery was told."""
    value: float | None
    reason: str | None
    done: tuple[str, ...] = ()
    """What the log has from then to its end."""

    def within(self, since: float) -> bool:
        return self.ended is None or self.ended >= since


def is_alert(record: Record) -> bool:
    return "alert" in record.how and "rule" in record.how


def when(record: Record) -> float | None:
    """Unix s; None for a time that nobody can read."""
    try:
        return datetime.fromisoformat(record.time).timestamp()
    except (ValueError, OverflowError):
        return None


def incidents(records: Sequence[Record], since: float, until: float) -> list[Incident]:
    """Those that were going on at some time from `since` on, the oldest first."""
    found = [one for one in _paired(records) if one.within(since) and one.began <= until]
    return [_with_deeds(one, records, until) for one in sorted(found, key=lambda i: i.began)]


def _paired(records: Iterable[Record]) -> Iterator[Incident]:
    """A recovery ends the onset of the same rule at the same target that is open."""
    begun: dict[tuple[str, str], Incident] = {}
    for record in records:
        if not is_alert(record):
            continue
        for target in record.how.get("targets", ()):
            key = (str(record.how["rule"]), str(target["name"]))
            before = begun.pop(key, None)
            if record.how.get("state") == FIRING:
                if before is not None:  # its end was told to nobody: the watch ended before
                    yield before
                begun[key] = _onset(record, target)
            elif before is not None:
                yield _ended(before, float(target["since"]))
    yield from begun.values()


def _onset(record: Record, target: Mapping[str, Any]) -> Incident:
    how = record.how
    return Incident(
        str(how["rule"]), str(target["name"]), str(how.get("severity", "warning")),
        str(how.get("words", "")), record.why, float(target["since"]), None,
        target.get("value"), target.get("reason"),
    )  # fmt: skip


def _ended(one: Incident, at: float) -> Incident:
    return Incident(**{**one.__dict__, "ended": at})


def _with_deeds(one: Incident, records: Sequence[Record], until: float) -> Incident:
    end = until if one.ended is None else one.ended
    deeds = tuple(
        deed_of(record, at)
        for record in records
        if not is_alert(record) and (at := when(record)) is not None and one.began <= at <= end
    )
    return Incident(**{**one.__dict__, "done": deeds})


def deed_of(record: Record, at: float) -> str:
    """03:12 Cap 48 → 24 (anna)"""
    who = f" ({record.operator})" if record.operator else ""
    return f"{datetime.fromtimestamp(at):%H:%M} {record.title}{who}"


def change_of(change: Change) -> str:
    return f"{change.key}: {text_of(change.before)} → {text_of(change.after)}"
