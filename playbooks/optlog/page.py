"""A record as a page that answers, in this order: what changed, why, what it did, what went wrong.

The page is a list of blocks; Markdown, HTML and the terminal each write the same blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playbooks.optlog.diff import relative
from playbooks.optlog.record import LogEffect, Record
from playbooks.reports.document import Column, Table, text_of
from playbooks.reports.language import Name

DECISION_WORDS = {
    "adopt": "adopted", "reject": "rejected", "hold": "on hold, not decided",
    "rolled_back": "rolled back",
}  # fmt: skip

FIRST = (
    "command", "experiment", "step", "from", "to", "one change, because", "limit before",
    "limit after", "model", "lengths", "throughput", "latency", "repeats", "seed",
)  # fmt: skip
"""Facts of `how` that are read first; the file keeps no order."""
TYPED = {"command", "experiment", "from", "lengths", "model", "playbook", "steps", "target", "to"}
"""Facts whose values are names."""
KEYS = ("metric", "batch", "item", "control")
"""Columns that name what a row is about."""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str | tuple[str, str]]
    """Texts, or a name and what it is."""


Block = Heading | Paragraph | Bullets | Table


def page(record: Record) -> list[Block]:
    decided = DECISION_WORDS.get(record.decision, record.decision)
    who = f" by {record.operator}" if record.operator else ""
    blocks: list[Block] = [
        Heading(record.title, 2),
        Paragraph(f"{_when(record.time)}{who}; {decided}; {record.claim}; record {record.id}"),
        Heading("What changed", 3),
        _changes(record),
        Heading("Why", 3),
        Paragraph(record.why or "No reason was written down."),
        Heading("What it did", 3),
        _effects(record),
        Heading("What went wrong", 3),
        Bullets(record.problems) if record.problems else Paragraph("Nothing was noted."),
    ]
    for title, table in (("How it was done", record.how), ("Where", record.environment)):
        if table:
            blocks += [Heading(title, 3), *_facts(table)]
    if record.rollback:
        blocks += [Heading("How to undo it", 3), Paragraph(record.rollback)]
    if record.artifacts:
        blocks += [Heading("Files", 3), Bullets(record.artifacts)]
    return blocks


def _changes(record: Record) -> Block:
    if not record.what:
        return Paragraph("Nothing: this was a look.")
    rows = [[c.key, text_of(c.before), text_of(c.after)] for c in record.what]
    return Table("", [Column("setting"), Column("before"), Column("after")], rows)


def _effects(record: Record) -> Block:
    if not record.effect:
        return Paragraph("No effect was written down.")
    columns = (
        Column("metric"), Column("before", numeric=True), Column("after", numeric=True),
        Column("change", numeric=True), Column("n", numeric=True), Column("verdict"),
    )  # fmt: skip
    rows = [
        [e.metric, text_of(e.before), text_of(e.after), change_of(e), text_of(e.n), e.verdict or ""]
        for e in record.effect
    ]
    return Table("", columns, rows)


def change_of(effect: LogEffect) -> str:
    """The interval where there is one, else what before and after say."""
    if effect.low is not None and effect.high is not None:
        if effect.low == effect.high:
            return f"{effect.low:+.1%}"
        return f"{effect.low:+.1%} … {effect.high:+.1%}"
    change = relative(effect.before, effect.after)
    return "–" if change is None else f"{change:+.1%}"


def _facts(table: Mapping[str, Any]) -> list[Block]:
    """Single facts as a list; sentences and alike rows each under their own name."""
    order = {name: i for i, name in enumerate(FIRST)}
    table = dict(sorted(table.items(), key=lambda fact: order.get(fact[0], len(order))))
    single = {k: v for k, v in table.items() if not _all(v, Mapping) and not _all(v, str)}
    blocks: list[Block] = []
    if single:
        blocks.append(Bullets([(_name(key), _fact(key, v)) for key, v in single.items()]))
    for key, value in table.items():
        if key not in single:
            inside = Bullets(value) if _all(value, str) else _rows(value)
            blocks += [Paragraph(f"{key.replace('_', ' ')}:"), inside]
    return blocks


def _when(time: str) -> str:
    """As people write what ISO 8601 has to the millisecond."""
    return f"{time[:19].replace('T', ' ')} UTC" if time else "no time"


def _name(key: str) -> str:
    return "its steps" if key == "steps" else key.replace("_", " ")


def _fact(key: str, value: Any) -> str:
    return Name(text_of(value)) if key in TYPED else text_of(value)


def _all(value: Any, kind: type) -> bool:
    is_list = isinstance(value, list | tuple) and len(value) > 0
    return is_list and all(isinstance(item, kind) for item in value)


def _rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: name not in KEYS)
    cells = [[text_of(row.get(name)) for name in names] for row in rows]
    return Table("", [Column(name) for name in names], cells)
