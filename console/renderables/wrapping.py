"""Text broken into rows of terminal cells: at blanks, and between Chinese characters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from rich.cells import cell_len, chop_cells

_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60"
_CLOSING = "，。；：、！？）】”’》%…"
_PIECE = re.compile(rf"[（“‘《【]*(?:[{_WIDE}]|[^\s{_WIDE}]+)[{_CLOSING}]*|[{_CLOSING}]+")
"""What stays together: a word of letters, or one Chinese character, with the signs around it."""


@lru_cache(maxsize=256)
def wrap(text: str, width: int) -> tuple[str, ...]:
    """Break at spaces and between Chinese characters where possible, anywhere where not; widths
    are terminal cells."""
    rows: list[str] = []
    for paragraph in text.replace("\t", "    ").splitlines():
        row = ""
        for gap, word in _pieces(paragraph):
            grown = f"{row}{gap}{word}" if row else word
            if cell_len(grown) <= width:
                row = grown
                continue
            if row:
                rows.append(row)
            *full, row = chop_cells(word, width) or [""]
            rows += full
        rows.append(row)
    return tuple(rows)


def _pieces(paragraph: str) -> Iterator[tuple[str, str]]:
    """The blank before a piece, and the piece."""
    for at, word in enumerate(paragraph.split(" ")):
        if word.isascii():
            yield " " if at else "", word
            continue
        for inside, piece in enumerate(_PIECE.findall(word)):
            yield " " if at and not inside else "", piece
