"""The pool as a picture: one glyph a page, or one for several where pages outnumber cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from console.renderables.lines import Line, Role, Span, Verbatim

STATES = "socf"
"""Letters of a page map, the most used first: a tie inside a cell goes to the earlier one."""
# not shown
GLYPHS: dict[str, tuple[str, Role]] = {
    "s": ("■", "sealed"),
    "o": ("▣", "open"),
    "c": ("▒", "cached"),
    "f": ("·", "free"),
}
NAMES = {"s": "sealed", "o": "open", "c": "cached", "f": "free"}
_UNKNOWN: tuple[str, Role] = ("?", "trouble")  # not shown


@dataclass(frozen=True, slots=True)
class PageMap:
    lines: list[Line]
    pages_per_cell: int


class Grade(NamedTuple):
    """Of a map of ages."""

    letters: str
    glyph: str
    role: Role
    meaning: str


AGES = (
    Grade("0", "█", "open", "< 1 s"),
    Grade("123", "▓", "sealed", "< 8 s"),
    Grade("456", "▒", "spark", "< 64 s"),
    Grade("789", "░", "label", "older"),
    Grade(".", "·", "free", "free"),
)
# not shown
OWNER_ROLES: tuple[Role, ...] = ("sealed", "open", "cached", "operator", "value")
_AGE_GLYPHS: dict[str, tuple[str, Role]] = {
    letter: (grade.glyph, grade.role) for grade in AGES for letter in grade.letters
}
# not shown
_OWNER_MARKS: dict[str, tuple[str, Role]] = {
    ".": ("·", "free"),
    "+": ("+", "trouble"),
    "*": ("*", "text"),
}

Glyph = Callable[[str], tuple[str, Role]]


def state_glyph(letter: str) -> tuple[str, Role]:
    return GLYPHS.get(letter, _UNKNOWN)


def age_glyph(grade: str) -> tuple[str, Role]:
    return _AGE_GLYPHS.get(grade, _UNKNOWN)


def owner_glyph(letter: str) -> tuple[str, Role]:
    """The letter itself: neighbours differ by it, and by colour where there is one."""
    return _OWNER_MARKS.get(letter) or (letter, OWNER_ROLES[ord(letter) % len(OWNER_ROLES)])


def page_map(
    pages: str, width: int, rows: int, glyph: Glyph = state_glyph, states: str = STATES
) -> PageMap:
    """Draw `pages` (one letter each, pool order) in at most `rows` lines of `width` cells.

    `states` are all letters there are, if they are few: a cell for several pages shows what
    most of them are.
    """
    columns = width - width % 8 if width >= 32 else width
    if rows < 1 or columns < 1 or not pages:
        return PageMap([], 1)
    per_cell = -(-len(pages) // (columns * rows))
    cells = pages if per_cell == 1 else merge(pages, per_cell, states)
    roomy = len(cells) * 2 <= (columns // 2) * 2 * rows
    step = columns // 2 if roomy else columns
    return PageMap(
        [_row(cells[at : at + step], roomy, glyph) for at in range(0, len(cells), step)], per_cell
    )


def merge(pages: str, per_cell: int, states: str = STATES) -> str:
    """Each run of `per_cell` pages becomes the state that most of them are in."""
    groups = (pages[at : at + per_cell] for at in range(0, len(pages), per_cell))
    return "".join(max(states or _owners(group), key=group.count) for group in groups)


def _owners(group: str) -> str:
    """Whoever holds a page of the group; nobody only where nobody does."""
    return "".join(sorted(set(group) - {"."})) or "."


def _row(cells: str, roomy: bool, glyph: Glyph) -> Line:
    spans: list[Span] = []
    for state, run in groupby(cells):
        sign, role = glyph(state)
        length = len(list(run))
        spans.append(Verbatim((sign + " " if roomy else sign) * length, role))
    return tuple(spans)
