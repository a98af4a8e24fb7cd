"""A report as a document: sentences, tables, charts. Every format that is read is made from it.

Cells keep their numbers; how a column is written for people belongs to the column.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playbooks.reports.language import Name
from playbooks.reports.text import json_values

Cell = str | int | float | bool | None
Show = Callable[[Cell], str]


def plain(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if 10_000 <= abs(value) < math.inf else f"{value:,.4g}"


def text_of(value: Any) -> str:
    """Any value for people; of large numbers the thousands stand apart."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}{_beside(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(text_of, value))
    if isinstance(value, int | float) and abs(value) >= 10_000:
        return f"{value:,.0f}" if isinstance(value, float) else f"{value:,}"
    if value is None or isinstance(value, int | float | str):
        return plain(value)
    return json.dumps(json_values(value), ensure_ascii=False)


def _beside(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f" {text_of(value)}"
    return f" ({text_of(value)})" if value else ""


def named(value: Cell) -> str:
    """Of a column of names: what is typed is the same in every language."""
    return Name(plain(value))


def _number(text: Callable[[float], str]) -> Show:
    def show(value: Cell) -> str:
        if value is None or isinstance(value, str) or math.isnan(value):
            return "–" if value is None or not isinstance(value, str) else value
        return text(float(value))

    return show


def _duration(ms: float) -> str:
    return f"{ms / 1e3:.2f} s" if ms >= 1000 else f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"


def _size(size: float) -> str:
    return f"{size / (1 << 20):,.1f} MiB" if size >= 1 << 20 else f"{size:,.0f} B"


duration = _number(_duration)
size = _number(_size)
percent = _number(lambda v: f"{v:.1%}")
change = _number(lambda v: f"{v:+.1%}")
rate = _number(lambda v: f"{v:,.1f}")
whole = _number(lambda v: f"{v:,.0f}")


@dataclass(frozen=True)
class Column:
    name: str
    show: Show = plain
    numeric: bool = False


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def texts(self) -> list[list[str]]:
        return [
            [column.show(cell) for column, cell in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


@dataclass(frozen=True)
class Facts:
    """Names and what is to be said of each; an empty name goes on with the one before."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Line:
    """One curve; `low` and `high` are its interval where it has one."""

    name: str
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


@dataclass(frozen=True)
class Chart:
    """Curves over one x axis, which is logarithmic (base 2) unless it is `linear`."""

    title: str
    x_label: str
    x: Sequence[float]
    lines: Sequence[Line]
    show: Show = plain
    marks: Sequence[tuple[str, float]] = ()
    """Names and places on the x axis."""
    linear: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    """Places on the x axis and what stands there; none: every x, as a number."""

    @property
    def labels(self) -> Sequence[tuple[float, str]]:
        """What stands under the x axis."""
        return self.ticks or [(value, f"{value:g}") for value in self.x]

    def mark(self, name: str, at: float) -> str:
        """A mark's text: with its place, where places are numbers."""
        return name if self.ticks else f"{name} {at:g}"

    def along(self, value: float) -> float:
        """How far along the x axis it is, from 0 to 1."""
        low, high, value = (
            v if self.linear else math.log2(v) for v in (min(self.x), max(self.x), value)
        )
        return (value - low) / ((high - low) or 1.0)


@dataclass(frozen=True)
class Bars:
    """Shares of a whole, side by side."""

    title: str
    parts: Sequence[tuple[str, float]]


@dataclass
class Document:
    title: str
    lead: list[str] = field(default_factory=list)
    background: list[str] = field(default_factory=list)
    """Paragraphs that a reader at a terminal does without."""
    tables: list[Table] = field(default_factory=list)
    """The first is the result itself."""
    full: Table | None = None
    """The result with every column, for files: CSV, Markdown and HTML. None: the first table."""
    charts: list[Chart] = field(default_factory=list)
    more_charts: list[Chart] = field(default_factory=list)
    """Those that a reader at a terminal does without."""
    bars: list[Bars] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    """The result's entries as they are: what a JSON-lines file holds."""

    @property
    def result(self) -> Table:
        """What a CSV file holds."""
        if self.full is not None or self.tables:
            return self.full or self.tables[0]
        rows = [(facts.title, name, text) for facts in self.facts for name, text in facts.rows]
        return Table(self.title, [Column("about"), Column("what"), Column("text")], rows)


def flat(report: dict[str, Any], prefix: str = "") -> list[tuple[str, Cell]]:
    """Every number and text of a report by its path: for kinds without a document of their own."""
    found: list[tuple[str, Cell]] = []
    for key, value in report.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found.extend(flat(value, f"{name}."))
        elif isinstance(value, list):
            found.append((name, f"{len(value)} entries"))
        else:
            found.append((name, value))
    return found
