"""Snapshots as small deltas and back: what a recording's frames are made of. No files here.

A Snapshot becomes a *state*: plain JSON values, numbers rounded to what a screen can show
(times to a millisecond, the rest to five digits), the requests as columns. A *delta* holds what
changed from the state before it, so that an hour fits into a few megabytes:

    dict     [{changed key: delta}, [keys that are gone]]
    list     {index: delta} of the same length, or the whole list
    text     [[block, 32 letters], …] of the same length (page maps), or the whole text
    events   [how many fell off the front, [the new ones]]
    requests {"ids": [...], column: [0 as predicted | difference | [the value itself]]}

A request's age, and its wait while it waits, is predicted to have grown by the time that passed.
"""

from __future__ import annotations

import math
from dataclasses import fields
from operator import attrgetter
from typing import Any

from engine.snapshot import RequestRow, Snapshot

State = dict[str, Any]

BLOCK = 32
COLUMNS = tuple(field.name for field in fields(RequestRow))
_FLOATS = frozenset(f.name for f in fields(RequestRow) if "float" in str(f.type))
_read_row = attrgetter(*COLUMNS)
_TABLES = ("events", "requests")


# --- Snapshot ⇄ state --------------------------------------------------------------------


def state_of(snapshot: Snapshot) -> State:
    plain = snapshot.to_plain(without=_TABLES)
    state: State = {key: _rounded(value) for key, value in plain.items()}
    state["events"] = [[_number(e.time), e.kind, e.text, e.count] for e in snapshot.events]
    rows = [_read_row(row) for row in snapshot.requests]
    columns = zip(*rows, strict=True) if rows else ([] for _ in COLUMNS)
    state["requests"] = {
        name: [_scaled(v) for v in column] if name in _FLOATS else list(column)
        for name, column in zip(COLUMNS, columns, strict=True)
    }
    return state


def snapshot_of(state: State) -> Snapshot:
    """Raises ValueError when the state is no Snapshot."""
    keys = ("time", "kind", "text", "count")
    known = {name: column for name, column in state["requests"].items() if name in COLUMNS}
    values = [
        [_unscaled(v) for v in column] if name in _FLOATS else column
        for name, column in known.items()
    ]
    rows = [dict(zip(known, row, strict=True)) for row in zip(*values, strict=True)]
    events = [dict(zip(keys, event, strict=True)) for event in state["events"]]
    return Snapshot.from_plain({**state, "events": events, "requests": rows})


def sample_of(state: State) -> Snapshot:
    """Only what graphs read of it, a fifth of the work: numbers, no maps, histograms or tables."""
    plain: State = {key: state[key] for key in ("schema", "seq", "time", "source") if key in state}
    for section in ("queue", "batch", "kv", "latency", "memory"):
        numbers = state.get(section, {}).items()
        plain[section] = {
            name: value
            for name, value in numbers
            if isinstance(value, int | float) or name.endswith("_ms")
        }
    return Snapshot.from_plain(plain)


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


def _scaled(value: float | None) -> int | float | None:
    """Thousandths, as a whole number; a number too large for that as it is."""
    if value is None or not math.isfinite(value):
        return None
    return round(value * 1000) if abs(value) < 1e12 else float(value)


def _unscaled(value: int | float | None) -> float | None:
    return value / 1000 if isinstance(value, int) else value


# --- deltas --------------------------------------------------------------------------------


def difference(old: State, new: State) -> State:
    """What `patched` needs to make `new` of `old`."""
    delta: State = {}
    if old["events"] != new["events"]:
        delta["events"] = _shifted(old["events"], new["events"])
    if old["requests"] != new["requests"]:
        delta["requests"] = _rows(old["requests"], new["requests"], _elapsed(old, new))
    rest = _diff_dict(_without_tables(old), _without_tables(new))
    return {**delta, "rest": rest}


def patched(old: State, delta: State) -> State:
    """Raises ValueError, TypeError, KeyError or IndexError when they do not go together."""
    new: State = _patch(_without_tables(old), delta["rest"])
    new["events"], new["requests"] = old["events"], old["requests"]
    if "events" in delta:
        dropped, added = delta["events"]
        new["events"] = old["events"][dropped:] + added
    if "requests" in delta:
        new["requests"] = _patch_rows(old["requests"], delta["requests"], _elapsed(old, new))
    return new


def _elapsed(old: State, new: State) -> int:
    """Milliseconds."""
    return round((new["time"] - old["time"]) * 1000)


def _without_tables(state: State) -> State:
    return {key: value for key, value in state.items() if key not in _TABLES}


def _diff(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return _diff_dict(old, new)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return {
            str(i): _diff(a, b) for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b
        }
    if isinstance(old, str) and isinstance(new, str) and len(old) == len(new) > 2 * BLOCK:
        starts = range(0, len(new), BLOCK)
        return [[i // BLOCK, new[i : i + BLOCK]] for i in starts if not _same(old, new, i)]
    return new


def _same(old: str, new: str, start: int) -> bool:
    return old[start : start + BLOCK] == new[start : start + BLOCK]


def _diff_dict(old: State, new: State) -> list[Any]:
    changed = {
        key: _diff(old[key], value) if key in old else value
        for key, value in new.items()
        if key not in old or old[key] != value or type(old[key]) is not type(value)
    }
    gone = [key for key in old if key not in new]
    return [changed, gone] if gone else [changed]


def _patch(old: Any, delta: Any) -> Any:
    if isinstance(old, dict) and isinstance(delta, list):
        changed, *gone = delta
        new = {key: value for key, value in old.items() if not gone or key not in gone[0]}
        for key, value in changed.items():
            new[key] = _patch(old[key], value) if key in old else value
        return new
    if isinstance(old, list) and isinstance(delta, dict):
        items = list(old)
        for at, value in delta.items():
            items[int(at)] = _patch(items[int(at)], value)
        return items
    if isinstance(old, str) and isinstance(delta, list):
        blocks = [old[i : i + BLOCK] for i in range(0, len(old), BLOCK)]
        for at, text in delta:
            blocks[at] = text
        return "".join(blocks)
    return delta


def _shifted(old: list[Any], new: list[Any]) -> list[Any]:
    """[dropped, added]: a bounded tail loses its first entries and gains new ones."""
    for dropped in range(len(old) + 1):
        kept = len(old) - dropped
        if kept <= len(new) and old[dropped:] == new[:kept]:
            return [dropped, new[kept:]]
    raise AssertionError("dropping everything always fits")


# --- requests ------------------------------------------------------------------------------


def _rows(old: State, new: State, elapsed: int) -> State:
    ids = new["id"]
    delta: State = {} if old["id"] == ids else {"ids": ids}
    for name, before in _carried(old, ids):
        predicted = _predicted(name, before, new["state"], elapsed)
        entries = [_entry(p, v) for p, v in zip(predicted, new[name], strict=True)]
        if any(entry != 0 for entry in entries):
            delta[name] = entries
    return delta


def _patch_rows(old: State, delta: State, elapsed: int) -> State:
    ids: list[str] = delta["ids"] if "ids" in delta else old["id"]
    new: State = {"id": ids}
    for name, before in _carried(old, ids):
        predicted = _predicted(name, before, new.get("state", []), elapsed)
        entries = delta.get(name)
        new[name] = predicted if entries is None else _corrected(predicted, entries)
    return new


def _carried(old: State, ids: list[str]) -> list[tuple[str, list[Any]]]:
    """Each column as it was for these requests, 0 for a new one; the states come first."""
    if ids == old["id"]:
        return [item for item in old.items() if item[0] != "id"]
    row_of = {name: at for at, name in enumerate(old["id"])}
    places = [row_of.get(name, -1) for name in ids]
    names = [name for name in old if name != "id"]
    return [(name, [old[name][at] if at >= 0 else 0 for at in places]) for name in names]


def _predicted(name: str, before: list[Any], states: list[str], elapsed: int) -> list[Any]:
    """What a column is if nothing happened but time. `elapsed` in milliseconds."""
    if name == "age_s":
        return [_grown(value, elapsed) for value in before]
    if name == "wait_ms":
        rows = zip(before, states, strict=True)
        return [v if state == "running" else _grown(v, elapsed * 1000) for v, state in rows]
    return before


def _grown(value: Any, by: int) -> Any:
    return value + by if type(value) is int and value else value


def _entry(predicted: Any, value: Any) -> Any:
    if type(predicted) is int and type(value) is int:
        return value - predicted
    return 0 if predicted == value and type(predicted) is type(value) else [value]


def _corrected(predicted: list[Any], entries: list[Any]) -> list[Any]:
    return [
        (p + e if e else p) if type(e) is int else e[0]
        for p, e in zip(predicted, entries, strict=True)
    ]
