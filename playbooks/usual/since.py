"""What has changed since a kept run: settings, environment, and what the log says was done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from playbooks.optlog import Record
from playbooks.usual.kept import KeptRun

LOG_ENTRIES = 3
"""The newest ones are named."""
NO_CHANGE = ("Check ", "Self-test ", "Soak:", "Alert ")
"""Titles of entries that only looked."""


def changes_since(before: KeptRun, now: KeptRun, log: Iterable[Record] = ()) -> tuple[str, ...]:
    return (
        *_differences(before.kind, now.kind),
        *_differences(before.settings, now.settings),
        *_differences(before.environment, now.environment),
        *_entries(before.when, log),
    )


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The leaves that differ, by their dotted names."""
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from (f"{name}.{inner}" for inner in _differences(old, new))
        elif old != new:
            yield f"{name} {_shown(old)} → {_shown(new)}"


def _shown(value: Any) -> str:
    return "–" if value is None else str(value)


def _entries(since: float, log: Iterable[Record]) -> Iterator[str]:
    moment = datetime.fromtimestamp(since, UTC).isoformat()
    done = [r for r in log if r.time > moment and not r.title.startswith(NO_CHANGE)]
    yield from (f"log: {record.title}" for record in done[-LOG_ENTRIES:])
