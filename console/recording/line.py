"""A recording's lines: one Snapshot as one line of JSON, and back. No files here.

    {"at": Unix seconds, "new_events": how many came since the line before, …the Snapshot…}

Numbers are rounded to what a screen can show (times to a millisecond, the rest to five digits).
The rows of the request table stand as columns, {"id": [...], "state": [...], …}; what grows with
the clock stands as the time it counts from, which does not change: `came` for age_s, and while a
request waits `waits_since` for wait_ms. The first two keys are read without parsing the rest: see
`Moment`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from engine.snapshot import SCHEMA, RequestRow, Snapshot, Source, SourceState

COLUMNS = tuple(field.name for field in fields(RequestRow))
RUNNING = "running"
_read_row = attrgetter(*COLUMNS)
_DECODER = json.JSONDecoder()
_HEAD = re.compile(rb'\{"at":(\d+(?:\.\d+)?),"new_events":(\d+),')


@dataclass(frozen=True, slots=True)
class Moment:
    """A line, as far as it is read to find one's way."""

    at: float
    """Unix seconds."""
    new_events: int
    line: bytes

    @classmethod
    def of(cls, line: bytes) -> Moment:
        """Raises ValueError when it is no such line."""
        head = _HEAD.match(line)
        if head is None:
            raise ValueError("a line does not begin with its time")
        return cls(float(head[1]), int(head[2]), line)

    def snapshot(self) -> Snapshot:
        """Raises ValueError when the line holds no Snapshot."""
        plain = self._plain()
        try:
            columns = _with_ages(plain["requests"], plain["time"])
            rows = zip(*columns.values(), strict=True)
            plain["requests"] = [dict(zip(columns, row, strict=True)) for row in rows]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no table of requests ({error!r})") from error
        return Snapshot.from_plain(plain)

    def sample(self) -> Snapshot:
        """Only what graphs read, a fifth of the work: numbers, no maps, histograms or tables.
        Raises ValueError as `snapshot` does."""
        plain = self._plain()
        sample: dict[str, Any] = {
            key: plain[key] for key in ("schema", "seq", "time", "source") if key in plain
        }
        for section in ("queue", "batch", "kv", "latency", "memory"):
            numbers = plain.get(section)
            if isinstance(numbers, dict):
                sample[section] = {
                    name: value
                    for name, value in numbers.items()
                    if isinstance(value, int | float) or name.endswith("_ms")
                }
        return Snapshot.from_plain(sample)

    def counts(self) -> Snapshot:
        """Only where it came from and what of the objectives was counted: without the work of the
        rest. Where it cannot be read, a Snapshot of nobody who answers."""
        text, plain = self.line.decode(errors="replace"), dict[str, Any](schema=SCHEMA)
        try:
            for key in ("time", "source", "objectives"):
                at = text.find(f'"{key}":')
                if at >= 0:
                    plain[key] = _DECODER.raw_decode(text, at + len(key) + 3)[0]
            return Snapshot.from_plain(plain)
        except (ValueError, RecursionError):
            return Snapshot(time=self.at, source=Source(SourceState.UNPARSABLE))

    def _plain(self) -> dict[str, Any]:
        try:
            plain = json.loads(self.line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(plain, dict):
            raise ValueError("a line is no object")
        return plain


def line_of(snapshot: Snapshot, at: float, new_events: int) -> bytes:
    """With its line feed. `at` is Unix seconds."""
    plain = snapshot.to_plain(without=("requests",))
    rows = [_read_row(row) for row in snapshot.requests]
    columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS)
    requests = {
        name: [_milli(v) if isinstance(v, float) else v for v in column]
        for name, column in zip(COLUMNS, columns, strict=True)
    }
    _put_times(requests, _number(snapshot.time) or 0.0)
    head = {"at": round(at, 3), "new_events": new_events}
    state = head | {key: _rounded(value) for key, value in plain.items()} | {"requests": requests}
    return json.dumps(state, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _put_times(columns: dict[str, list[Any]], now: float) -> None:
    """In place of what grows with `now`."""
    columns["came"] = [None if age is None else round(now - age, 3) for age in columns.pop("age_s")]
    waits = columns["wait_ms"]
    grows = [w is not None and s != RUNNING for w, s in zip(waits, columns["state"], strict=True)]
    columns["wait_ms"] = [None if g else w for g, w in zip(grows, waits, strict=True)]
    columns["waits_since"] = [
        round(now - w / 1e3, 3) if g else None for g, w in zip(grows, waits, strict=True)
    ]


def _with_ages(columns: dict[str, list[Any]], now: float) -> dict[str, list[Any]]:
    """The inverse."""
    found = dict(columns)
    came, since = found.pop("came"), found.pop("waits_since")
    found["age_s"] = [None if time is None else round(now - time, 3) for time in came]
    found["wait_ms"] = [
        wait if time is None else round((now - time) * 1e3, 3)
        for wait, time in zip(found["wait_ms"], since, strict=True)
    ]
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


def _number(value: float) -> float | None:
    """Five digits, and milliseconds of a Unix time; what is no number becomes None."""
    if not math.isfinite(value):
        return None
    return round(value, 3) if abs(value) >= 100 else float(f"{value:.5g}")


def _milli(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
