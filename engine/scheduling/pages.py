"""PagePool: which page is whose. Bookkeeping only; the bytes live in kv_cache. No torch.

Every page is in exactly one state, and free + open + sealed + cached == total:

    free ──allocate──► open ──seal──► sealed ──last release──► cached ──hit──► sealed
      ▲                  │              │ (not in the index)      │
      └──────────────────┴──────────────┴──────── evicted ────────┘

An open page still takes tokens and belongs to one request. A sealed page is full, never
changes, and may be shared. A cached page is sealed, held by nobody, and kept while there is
room, because a later prompt may begin with it.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable

from engine.scheduling.prefix import PrefixIndex

FREE, OPEN, SEALED, CACHED = b"fosc"


class PagePool:
    """`total` pages of `page_tokens` tokens, and `slabs` open slabs.

    Running out is an answer (None), not an exception; misuse raises ValueError. With an
    `index`, pages that it knows are cached when their last holder leaves.
    """

    def __init__(
        self, total: int, page_tokens: int, slabs: int = 0, index: PrefixIndex | None = None
    ) -> None:
        self.total = total
        self.page_tokens = page_tokens
        self.slabs = slabs
        self.index = index
        self._free = list(range(total - 1, -1, -1))
        """A stack, so that a page just released (warm in the caches) goes out first."""
        self._states = bytearray([FREE]) * total
        self._refs = [0] * total
        self._unheld: OrderedDict[int, None] = OrderedDict()
        """Cached pages, the least recently used first."""
        self._free_slabs = list(range(slabs - 1, -1, -1))
        self._slab_is_out = bytearray(slabs)
        self._counts = {FREE: total, OPEN: 0, SEALED: 0, CACHED: 0}
        self.peak_used = 0
        """Most pages that were held at once."""
        self.evictions = 0
        self.references = 0
        """Pages held, counted once for each holder."""
        self.now = 0
        """What the clock says (ns); the scheduler sets it at each plan."""
        self.born = array("q", bytes(8 * total))
        """When each page was last taken from the free ones."""

    # what is there

    @property
    def free(self) -> int:
        return self._counts[FREE]

    @property
    def open(self) -> int:
        return self._counts[OPEN]

    @property
    def sealed(self) -> int:
        return self._counts[SEALED]

    @property
    def cached(self) -> int:
        return self._counts[CACHED]

    @property
    def available(self) -> int:
        """Pages that `allocate` can give: free ones, and cached ones after eviction."""
        return self._counts[FREE] + self._counts[CACHED]

    @property
    def used(self) -> int:
        """Pages that some request holds."""
        return self.total - self.available

    @property
    def free_slabs(self) -> int:
        return len(self._free_slabs)

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` tokens fill."""
        return -(-tokens // self.page_tokens)

    def fits(self, count: int) -> bool:
        """Would `allocate` give so many now?"""
        return count <= self.available

    def count_held(self, pages: Iterable[int]) -> int:
        """How many of them somebody holds."""
        return sum(self._refs[page] > 0 for page in pages)

    def page_map(self) -> str:
        """One letter a page in pool order: f(ree), o(pen), s(ealed), c(ached)."""
        return self._states.decode("ascii")

    # changes

    def allocate(self, count: int) -> list[int] | None:
        """`count` open pages, or None (and no change) when there are not that many."""
        if not self.fits(count):
            return None
        while len(self._free) < count:
            self._evict()
        return self._take([self._free.pop() for _ in range(count)])

    def share(self, pages: Iterable[int]) -> None:
        """One more holder of each of these sealed or cached pages."""
        for page in pages:
            if self._states[page] == CACHED:
                del self._unheld[page]
                self._move(page, SEALED)
            elif self._states[page] != SEALED:
                raise ValueError(f"page {page} is {chr(self._states[page])} and cannot be shared")
            self._refs[page] += 1
            self.references += 1
        self.peak_used = max(self.peak_used, self.used)

    def seal(self, pages: Iterable[int]) -> None:
        """Open pages that are full now."""
        for page in pages:
            if self._states[page] != OPEN:
                raise ValueError(f"page {page} is {chr(self._states[page])}, not open")
            self._move(page, SEALED)

    def release(self, pages: Iterable[int]) -> None:
        """One holder lets go of each page; without holders it is free, or cached."""
        for page in pages:
            if self._refs[page] < 1:
                raise ValueError(f"page {page} is released more often than it was taken")
            self._refs[page] -= 1
            self.references -= 1
            if self._refs[page] == 0:
                self._let_go(page)

    def take_slab(self) -> int | None:
        if not self._free_slabs:
            return None
        slab = self._free_slabs.pop()
        self._slab_is_out[slab] = True
        return slab

    def return_slab(self, slab: int) -> None:
        if not (0 <= slab < self.slabs and self._slab_is_out[slab]):
            raise ValueError(f"slab {slab} is not out")
        self._slab_is_out[slab] = False
        self._free_slabs.append(slab)

    def _take(self, pages: list[int]) -> list[int]:
        for page in pages:
            self._move(page, OPEN)
            self._refs[page] = 1
            self.born[page] = self.now
        self.references += len(pages)
        self.peak_used = max(self.peak_used, self.used)
        return pages

    def _let_go(self, page: int) -> None:
        if self.index is not None and page in self.index:
            self._move(page, CACHED)
            self._unheld[page] = None
        else:
            self._move(page, FREE)
            self._put_free(page)

    def drop_cached(self) -> None:
        """Free every page that nobody holds."""
        while self._unheld:
            self._evict()

    def _evict(self) -> None:
        page, _ = self._unheld.popitem(last=False)
        assert self.index is not None
        self.index.forget(page)
        self._move(page, FREE)
        self._put_free(page)
        self.evictions += 1

    def _put_free(self, page: int) -> None:
        self._free.append(page)

    def _move(self, page: int, state: int) -> None:
        self._counts[self._states[page]] -= 1
        self._counts[state] += 1
        self._states[page] = state

    # proof

    def check_integrity(self, holders: Iterable[list[int]] | None = None) -> None:
        """Recompute everything; AssertionError says what does not add up.

        `holders`: the block table of every request that holds pages, when known; then the
        refcounts must be exactly theirs.
        """
        states = self._states
        for state, count in self._counts.items():
            found = states.count(state)
            assert found == count, f"{chr(state)}: counted {count}, found {found}"
        assert sum(self._counts.values()) == self.total
        assert len(set(self._free)) == len(self._free), "a page is twice in the free list"
        assert all(states[page] == FREE for page in self._free), "a held page is in the free list"
        assert len(self._free) == self.free, "the free list misses pages"
        for page, refs in enumerate(self._refs):
            held = states[page] in (OPEN, SEALED)
            assert (refs > 0) == held, f"page {page}: {refs} holders in state {chr(states[page])}"
            assert states[page] != OPEN or refs == 1, f"open page {page} is shared"
        assert all(states[page] == CACHED for page in self._unheld), "a held page may be evicted"
        assert len(self._unheld) == self.cached, "a cached page can never be evicted"
        if self.index is not None:
            known = sum(page in self.index for page in range(self.total))
            assert known == len(self.index), "the index knows pages that are not there"
            assert all(page in self.index for page in self._unheld), "a cached page is unknown"
        assert sum(self._refs) == self.references, "holders are miscounted"
        out = sum(self._slab_is_out)
        assert len(set(self._free_slabs)) == len(self._free_slabs), "a slab is twice free"
        assert out + len(self._free_slabs) == self.slabs, "slabs are lost"
        if holders is not None:
            expected = [0] * self.total
            for table in holders:
                for page in table:
                    expected[page] += 1
            assert expected == self._refs, "refcounts differ from the block tables"


class ContiguousPool(PagePool):
    """The baseline before paging: a request's pages are one run, taken whole, first fit.

    The same pages, kernels and proofs; only which pages go together differs, so that a
    comparison with the paged pool changes one thing.
    """

    def __init__(self, total: int, page_tokens: int, slabs: int = 0) -> None:
        super().__init__(total, page_tokens, slabs)

    def fits(self, count: int) -> bool:
        return self._states.find(bytes([FREE]) * count) >= 0

    def allocate(self, count: int) -> list[int] | None:
        """The first run of `count` free pages; None when free pages lie too scattered."""
        if count == 0:
            return []
        at = self._states.find(bytes([FREE]) * count)
        if at < 0:
            return None
        run = list(range(at, at + count))
        taken = set(run)
        self._free = [page for page in self._free if page not in taken]
        return self._take(run)
