"""The material every panel is made of: spans of text with a role, and ways to lay them out.

What lays out says the texts in the reader's language first, so that widths are those of what is
shown: a text that is cut or padded before is no text of a catalogue any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, get_args

from rich.cells import cell_len, set_cell_size

from console.locale import lang
from console.locale.lang import _

Role: TypeAlias = Literal[
    "text",  # prose
    "label",  # the name of a value
    "value",  # a number
    "faint",  # axes, hints
    "trouble",  # the one accent: what the operator must look at
    "good",  # live, passed
    "key",  # a key to press
    "spark",  # the ink of a graph
    "sealed",
    "open",
    "cached",
    "free",
    "operator",  # what the operator typed
    "title",  # of a panel
    "frame",  # around a panel
]
ROLES: tuple[str, ...] = get_args(Role)
ALARM = "▲"
GAP = 2


class Span(NamedTuple):
    text: str
    role: Role = "text"
    link: str = ""
    """Action that a click runs, e.g. "app.show_run"."""


class Verbatim(Span):
    """Words of a model or of whoever asks it, names, signs: shown as they are in any language."""


Line: TypeAlias = tuple[Span, ...]
BLANK: Line = ()


class Field(NamedTuple):
    """A value with its name. `trouble` marks it with a sign as well as a colour."""

    label: str
    value: str
    trouble: bool = False

    @property
    def shown(self) -> Span:
        return (
            Span(f"{ALARM} {self.value}", "trouble") if self.trouble else Span(self.value, "value")
        )

    def line(self) -> Line:
        return (Span(f"{self.label} ", "label"), self.shown) if self.label else (self.shown,)


def plain(line: Line) -> str:
    return "".join(span.text for span in line)


def cells(text: str) -> int:
    """Terminal cells that `text` takes."""
    return len(text) if text.isascii() else cell_len(text)


def width_of(line: Line) -> int:
    total = 0
    for text, _role, _link in line:
        total += len(text) if text.isascii() else cell_len(text)
    return total


def text_line(text: str, role: Role = "text") -> Line:
    return (Span(text, role),)


def localized(line: Line) -> Line:
    """In the language of the product."""
    if lang.code() == lang.ENGLISH:
        return line
    return tuple(s if isinstance(s, Verbatim) else _said(s, lang.code()) for s in line)


@lru_cache(maxsize=8192)
def _said(span: Span, code: str) -> Span:
    """Blanks around a text are kept."""
    return span._replace(text=_(span.text))


def columns_line(cells: Iterable[tuple[str, int]], role: Role = "label") -> Line:
    """A row of a table: an `in_column` each."""
    return tuple(in_column(text, width, role) for text, width in cells)


def in_column(text: str, width: int, role: Role = "label") -> Span:
    """A text in as many cells in any language, at the right edge of a column of positive width,
    else at the left."""
    said = plain(fit(text_line(_(text)), abs(width)))
    blank = " " * (abs(width) - cells(said))
    return Span(blank + said if width > 0 else said + blank, role)


def fit(line: Line, width: int) -> Line:
    """`line` in at most `width` cells; what was cut shows as "…"."""
    line = localized(line)
    if width_of(line) <= width:
        return line
    kept: list[Span] = []
    left = max(0, width - 1)
    for span in line:
        room = min(left, cells(span.text))
        if room:
            kept.append(span._replace(text=set_cell_size(span.text, room)))
        left -= room
    return (*kept, Span("…", "faint")) if width > 0 else BLANK


def spread(left: Line, right: Line, width: int) -> Line:
    """`left` at the left edge and `right` at the right one; the left gives way."""
    right = localized(right)
    room = width - width_of(right)
    if room < 1:
        return fit(right, width)
    left = fit(left, room - 1)
    return (*left, Span(" " * (room - width_of(left))), *right)


def flow(fields: Iterable[Field], width: int, rows: int) -> list[Line]:
    """Fields in reading order, never split over lines; "…" where the rows ran out."""
    lines: list[Line] = []
    for field in fields:
        item = localized(field.line())
        if lines and width_of(lines[-1]) + GAP + width_of(item) <= width:
            lines[-1] = (*lines[-1], Span(" " * GAP), *item)
        else:
            lines.append(item)
    if len(lines) > rows:
        lines = lines[:rows]
        if lines:
            lines[-1] = fit((*lines[-1], Span(" …", "faint")), width)
    return [fit(line, width) for line in lines]


def grid(fields: Sequence[Field], width: int, columns: int, gap: int = 3) -> list[Line]:
    """Fields in equal columns, filled downwards: names at the left, values at the right."""
    rows = -(-len(fields) // columns)
    room = (width - gap * (columns - 1)) // columns
    lines = []
    for row in range(rows):
        cells = [cell(field, room) for field in fields[row::rows]]
        line: Line = cells[0]
        for item in cells[1:]:
            line = (*line, Span(" " * gap), *item)
        lines.append(line)
    return lines


def cell(field: Field, width: int) -> Line:
    """Exactly `width` cells, unless the value alone is wider."""
    label, shown = _(field.label), localized((field.shown,))[0]
    gap = width - cells(label) - cells(shown.text)
    if gap < 1:
        return spread((Span(label, "label"),), (shown,), width)
    return (Span(label + " " * gap, "label"), shown)


def beside(left: Sequence[Line], right: Sequence[Line], width: int, gap: int = 3) -> list[Line]:
    """Two columns of equal width; the shorter one ends in blanks."""
    room = half(width, gap)
    rows = max(len(left), len(right))
    lines = []
    for row in range(rows):
        first = left[row] if row < len(left) else BLANK
        second = right[row] if row < len(right) else BLANK
        lines.append((*pad(first, room), Span(" " * gap), *fit(second, room)))
    return lines


def half(width: int, gap: int = 3) -> int:
    """Of each column of `beside`."""
    return (width - gap) // 2


def pad(line: Line, width: int) -> Line:
    """`line` in exactly `width` cells."""
    line = fit(line, width)
    return (*line, Span(" " * (width - width_of(line))))


_LEFT, _RIGHT = Span("│ ", "frame"), Span(" │", "frame")


def boxed(line: Line, row: int, width: int, height: int) -> Line:
    """Row `row` of a box of `width` × `height`: row 0 carries a title, the last one nothing."""
    if row == 0:
        title = fit(line, width - 6)
        rest = "─" * (width - 5 - width_of(title))
        return (Span("╭─ ", "frame"), *title, Span(f" {rest}╮", "frame"))
    if row == height - 1:
        return (Span(f"╰{'─' * (width - 2)}╯", "frame"),)
    return (_LEFT, *pad(line, width - 4), _RIGHT)


def ruled(line: Line, row: int, width: int, height: int) -> Line:
    """The same with a rule above instead of a box around."""
    if row > 0:
        return (Span(" "), *fit(line, width - 2))
    title = fit(line, width - 3)
    rest = "─" * (width - 2 - width_of(title))
    return (Span("─", "frame"), *title, Span(f" {rest}", "frame"))
