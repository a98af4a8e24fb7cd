"""The pool as a picture: one glyph a page, or one for several where pages outnumber cells."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from console.renderables.lines import Line, Role, Span

STATES = "socf"
"""Letters of a page map, the most used first: a tie inside a cell goes to the earlier one."""
GLYPHS: dict[str, tuple[str, Role]] = {
    "s": ("■", "sealed"),
    "o": ("▣", "open"),
    "c": ("▒", "cached"),
    "f": ("·", "free"),
}
NAMES = {"s": "sealed", "o": "open", "c": "cached", "f": "free"}
_UNKNOWN: tuple[str, Role] = ("?", "trouble")


@dataclass(frozen=True, slots=True)
class PageMap:
    lines: list[Line]
    pages_per_cell: int


def page_map(pages: str, width: int, rows: int) -> PageMap:
    """Draw `pages` (one letter each, pool order) in at most `rows` lines of `width` cells."""
    columns = width - width % 8 if width >= 32 else width
    if rows < 1 or columns < 1 or not pages:
        return PageMap([], 1)
    per_cell = -(-len(pages) // (columns * rows))
    cells = pages if per_cell == 1 else merge(pages, per_cell)
    roomy = len(cells) * 2 <= (columns // 2) * 2 * rows
    step = columns // 2 if roomy else columns
    return PageMap(
        [_row(cells[at : at + step], roomy) for at in range(0, len(cells), step)], per_cell
    )


def merge(pages: str, per_cell: int) -> str:
    """Each run of `per_cell` pages becomes the state that most of them are in."""
    groups = (pages[at : at + per_cell] for at in range(0, len(pages), per_cell))
    return "".join(max(STATES, key=group.count) for group in groups)


def _row(cells: str, roomy: bool) -> Line:
    spans = []
    for state, run in groupby(cells):
        glyph, role = GLYPHS.get(state, _UNKNOWN)
        length = len(list(run))
        spans.append(Span((glyph + " " if roomy else glyph) * length, role))
    return tuple(spans)
