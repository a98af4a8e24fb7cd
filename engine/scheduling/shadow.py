"""What contiguous allocation would have made of the same requests. Bookkeeping only; no torch.

Engines before paging gave each sequence one run of memory for its final length. The shadow
replays the live admissions and releases that way, first fit, on as many token places as the
pool has. Free memory then lies in holes, and a request that is smaller than their sum may fit
into none.
"""

from __future__ import annotations

from bisect import insort


class ContiguousShadow:
    """Runs of `total` token places. All operations take time in the number of runs."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._runs: dict[str, tuple[int, int]] = {}
        """Request -> (start, size)."""
        self._order: list[tuple[int, int]] = []
        """The same runs by start."""
        self.refusals = 0
        """Requests that would have found no run though the paged pool took them."""

    def admit(self, request_id: str, tokens: int) -> bool:
        """Take the first hole of `tokens` places; False, counted, when there is none."""
        at = 0
        for start, size in [*self._order, (self.total, 0)]:
            if start - at >= tokens:
                self._runs[request_id] = (at, tokens)
                insort(self._order, (at, tokens))
                return True
            at = start + size
        self.refusals += 1
        return False

    def release(self, request_id: str) -> None:
        """Does nothing for one that was refused or never came."""
        run = self._runs.pop(request_id, None)
        if run is not None:
            self._order.remove(run)

    def holes(self) -> list[int]:
        """Sizes of the free runs."""
        sizes, at = [], 0
        for start, size in [*self._order, (self.total, 0)]:
            if start > at:
                sizes.append(start - at)
            at = start + size
        return sizes

    def runs(self) -> list[tuple[int, int]]:
        """(start, size) of what is taken, in order."""
        return list(self._order)

    @property
    def free(self) -> int:
        return self.total - sum(size for _, size in self._order)

    @property
    def largest_fit(self) -> int:
        """Tokens of the largest request that could still be placed."""
        return max(self.holes(), default=0)

    @property
    def fragmentation(self) -> float:
        """External: 1 − largest hole / free; 0 when nothing is free."""
        return 1 - self.largest_fit / self.free if self.free else 0.0
