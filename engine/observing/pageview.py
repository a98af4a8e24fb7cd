"""The pool as short strings: every page's state, and on demand its owner and its age.

A Snapshot carries these strings to whoever draws them, so they are bounded: in a pool of more
than MOST_LETTERS pages a letter stands for several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_letters, digits

import numpy as np

from engine.scheduling.pages import PagePool

MOST_LETTERS = 16_384
LETTERS = ascii_letters + digits
"""One for each request; when there are more requests, the last ones have none of their own."""
NOBODY, SHARED, REST = ".+*"
OLDEST = 9


def stride_of(total: int) -> int:
    """Pages that a letter stands for."""
    return -(-total // MOST_LETTERS)


def states(pool: PagePool) -> str:
    """Letters f, o, s, c; of several pages, the first one's: how many there are is counted."""
    return pool.page_map()[:: stride_of(pool.total)]


def shadow(runs: Iterable[tuple[int, int]], total: int, page_tokens: int) -> str:
    """Contiguous runs of token places as a map of `total` pages: s where anything is taken."""
    letters = np.full(total, ord("f"), np.uint8)
    for start, size in runs:
        letters[start // page_tokens : -(-(start + size) // page_tokens)] = ord("s")
    return letters[:: stride_of(total)].tobytes().decode("ascii")


class Owners:
    """Gives each holder of pages a letter, the same one for as long as it holds any."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def map(
        self, total: int, holders: Iterable[tuple[str, Sequence[int]]]
    ) -> tuple[str, dict[str, str]]:
        """Who holds each of `total` pages, and the id behind each letter.

        `holders`: request ids with their block tables. Of several pages, the first one's owner.
        """
        tables = dict(holders)
        known = {name: letter for name, letter in self._letters.items() if name in tables}
        free = iter(sorted(set(LETTERS) - set(known.values()), key=LETTERS.index))
        self._letters = known | dict(zip((n for n in tables if n not in known), free, strict=False))
        letters = np.full(total, ord(NOBODY), np.uint8)
        for name, pages in tables.items():
            mine = np.array(pages, np.int64)
            taken = mine[letters[mine] != ord(NOBODY)]
            letters[mine] = ord(self._letters.get(name, REST))
            letters[taken] = ord(SHARED)
        names = {letter: name for name, letter in self._letters.items()}
        return letters[:: stride_of(total)].tobytes().decode("ascii"), names


def ages(pool: PagePool, now: int) -> str:
    """Digit n: taken less than 2ⁿ seconds before `now` (ns, of the scheduler's clock)."""
    stride = stride_of(pool.total)
    born = np.frombuffer(pool.born, np.int64)[::stride]
    seconds = np.maximum((now - born) / 1e9, 0.5)
    grades = np.minimum(np.floor(np.log2(seconds)) + 1, OLDEST).astype(np.uint8) + ord("0")
    held = np.frombuffer(pool.page_map().encode("ascii"), np.uint8)[::stride] != ord("f")
    return np.where(held, grades, ord(NOBODY)).astype(np.uint8).tobytes().decode("ascii")
