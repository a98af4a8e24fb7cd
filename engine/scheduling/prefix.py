"""The prefix index: which sealed page holds the K and V of which tokens after which others.

A page is known by (the node of the page before it, its own tokens): the dictionary compares
the token ids themselves, so a hit can never be a mere collision of hashes. An index belongs to
one pool, and so to one model, KV format and calibration.
"""

from __future__ import annotations

from collections.abc import Sequence

Key = tuple[int, tuple[int, ...]]
ROOT = 0
"""The node before a first page."""


class PrefixIndex:
    def __init__(self) -> None:
        self._page: dict[Key, int] = {}
        self._key: dict[int, Key] = {}
        self._node: dict[int, int] = {}
        self._next = 0
        self.queried_tokens = 0
        self.hit_tokens = 0

    def __len__(self) -> int:
        return len(self._page)

    def __contains__(self, page: int) -> bool:
        return page in self._key

    def find(self, tokens: Sequence[int], page_tokens: int) -> list[int]:
        """Pages that hold the longest known prefix of `tokens`, whole pages only."""
        pages: list[int] = []
        node = ROOT
        for start in range(0, len(tokens) - page_tokens + 1, page_tokens):
            page = self._page.get((node, tuple(tokens[start : start + page_tokens])))
            if page is None:
                break
            pages.append(page)
            node = self._node[page]
        return pages

    def node_after(self, page: int | None) -> int:
        """The node that stands for `page` and all before it; the root for None."""
        return ROOT if page is None else self._node[page]

    def publish(self, page: int, parent: int, tokens: Sequence[int]) -> int:
        """A page has sealed: make it known. Returns the node for what follows it.

        When the same tokens are known already, the older page stays the known one.
        """
        key = (parent, tuple(tokens))
        known = self._page.get(key)
        if known is not None:
            return self._node[known]
        self._next += 1
        self._page[key], self._key[page], self._node[page] = page, key, self._next
        return self._next

    def forget(self, page: int) -> None:
        """The page is going to hold something else."""
        del self._page[self._key.pop(page)]
        del self._node[page]
