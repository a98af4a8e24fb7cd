"""The fleet as a table: a group with its verdict, and a line for each of its replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from console.locale.lang import _
from console.renderables import format as fmt
from console.renderables.header import MARKS, WORDS
from console.renderables.lines import ALARM, Line, Role, Span, Verbatim, columns_line, fit, pad
from console.renderables.wrapping import wrap
from engine.snapshot import Snapshot, SourceState

COLUMNS = (
    ("running", 8), ("waiting", 8), ("KV", 7), ("TTFT p50", 10), ("p99", 9), ("TPOT p50", 10),
    ("tok/s", 8),
)  # fmt: skip
NAME_LEAST, NAME_MOST, STATE = 10, 30, 22


@dataclass(frozen=True)
class FleetRow:
    """A line of the screen: a group's, a part of its verdict, or a replica's."""

    key: str
    kind: str
    """group | verdict | replica"""
    name: str
    snapshot: Snapshot = field(default_factory=Snapshot)
    text: str = ""
    trouble: bool = False
    """A replica that stands out, a verdict that names one."""


@dataclass(frozen=True)
class GroupView:
    """What a group's rows are made of."""

    name: str
    snapshots: Mapping[str, Snapshot]
    merged: Snapshot
    verdict: str
    odd: str | None


def rows_of(groups: Sequence[GroupView], width: int) -> list[FleetRow]:
    rows: list[FleetRow] = []
    for group in groups:
        several = len(group.snapshots) > 1
        dead = [n for n, s in group.snapshots.items() if s.source.state is not SourceState.LIVE]
        if several:
            rows.append(FleetRow(f"group {group.name}", "group", group.name, group.merged))
        for i, part in enumerate(wrap(fmt.clean(_(group.verdict)), max(20, width - 4))):
            key, trouble = f"verdict {group.name} {i}", bool(dead or group.odd)
            rows.append(FleetRow(key, "verdict", group.name, text=part, trouble=trouble))
        for name, snapshot in group.snapshots.items():
            rows.append(FleetRow(name, "replica", name, snapshot, trouble=name == group.odd))
    return rows


def head(width: int) -> Line:
    names = columns_line(_fitting(width))
    return (*pad((Span("target", "label"),), _name_width(width) + 1), *pad((), STATE), *names)


def row_line(row: FleetRow, width: int) -> Line:
    if row.kind == "verdict":
        role: Role = "trouble" if row.trouble else "text"
        return fit((Span(f"{ALARM if row.trouble else ' '} {row.text}", role),), width)
    role = "title" if row.kind == "group" else "trouble" if row.trouble else "text"
    sign = f"{ALARM} " if row.trouble else ""
    room = _name_width(width)
    name = pad(fit((Verbatim(sign + fmt.clean(row.name), role),), room), room + 1)
    return (*name, *pad(_state(row), STATE), *_numbers(row.snapshot, width))


def _state(row: FleetRow) -> Line:
    source = row.snapshot.source
    if row.kind == "group":
        return (Span("together", "label"),)
    mark, role = MARKS[source.state]
    if source.state is SourceState.LIVE:
        return (Span(f"{mark} ", role), Verbatim(source.engine))
    return fit((Span(f"{mark} {WORDS[source.state]} {fmt.age(source.age_s)}", role),), STATE - 1)


def _numbers(snapshot: Snapshot, width: int) -> Line:
    latency = snapshot.latency
    values = {
        "running": fmt.count(snapshot.batch.running),
        "waiting": fmt.count(snapshot.queue.waiting),
        "KV": fmt.percent(snapshot.kv.usage),
        "TTFT p50": fmt.bounded(latency.ttft_ms, "p50"),
        "p99": fmt.bounded(latency.ttft_ms, "p99"),
        "TPOT p50": fmt.bounded(latency.tpot_ms, "p50"),
        "tok/s": fmt.decimal(snapshot.batch.output_tok_s),
    }
    live = snapshot.source.state is SourceState.LIVE
    text = "".join(f"{values[name]:>{size}}" for name, size in _fitting(width))
    return (Span(text, "value" if live else "faint"),)


def _fitting(width: int) -> list[tuple[str, int]]:
    """The columns that there is room for beside name and state."""
    left, kept = width - NAME_LEAST - 1 - STATE, []
    for name, size in COLUMNS:
        if left < size:
            break
        left -= size
        kept.append((name, size))
    return kept


def _name_width(width: int) -> int:
    used = STATE + sum(size for _, size in _fitting(width)) + 1
    return max(NAME_LEAST, min(NAME_MOST, width - used))
