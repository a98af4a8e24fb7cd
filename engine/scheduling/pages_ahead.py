"""PagesAhead: how many pages will be held one step from now, two, eight, a hundred. No torch.

Who runs grows by a token a step and gives everything back when it ends. How probable it is that it
still runs then, the learnt lengths say, given how much it has said already; so each step ahead has
an expected number of pages and a variance. Between two looks the later one's size is taken with the
earlier one's chances: a course that dips in between is never taken for room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.request import Request
from engine.scheduling.lengths import CERTAIN, Floats, OutputLengths
from engine.scheduling.scheduler import Scheduler

AHEAD = np.unique(np.concatenate([[0, 1], (4 * 2 ** np.arange(0, 18, 0.25)).astype(np.int64)]))
"""Steps from now at which it looks, up to a million."""


class PagesAhead:
    """Of the requests that run now, and of those that are added."""

    def __init__(self, scheduler: Scheduler, lengths: OutputLengths) -> None:
        self._scheduler, self._pool, self._lengths = scheduler, scheduler.pool, lengths
        looks = int(np.searchsorted(AHEAD, scheduler.max_model_len)) + 1
        self._from, self._to = AHEAD[: looks - 1], AHEAD[1:looks] - 1
        """The first and the last step of each stretch."""
        running = list(scheduler.running.values())
        pages = [len(request.pages) for request in running]
        own = [len(request.pages) - request.prefix_pages for request in running]
        more, variance = self._demand(running, pages, own)
        self._more, self._variance = more.sum(axis=0), variance.sum(axis=0)
        """Pages more than now that will be held."""
        self._free = self._left = self._pool.available
        """Pages that nobody held when this was made, and that nobody holds now."""

    def have_room(self, requests: Sequence[Request], shared: Sequence[int]) -> list[bool]:
        """Of each by itself: it may start now, and there will probably be room at every step.
        `shared` of its pages are held by others already."""
        more, variance = self._demand(requests, shared, [0] * len(requests))
        margin = self._lengths.margin * np.sqrt(self._variance + variance)
        fits: list[bool] = (self._more + more + margin <= self._free).all(axis=1).tolist()
        return fits

    def add(self, request: Request) -> None:
        """It has been started, and given the pages of its first tokens."""
        taken, self._left = self._left - self._pool.available, self._pool.available
        more, variance = self._demand([request], [len(request.pages) - taken], [0])
        self._more += more[0]
        self._variance += variance[0]

    def _demand(
        self, requests: Sequence[Request], pages: Sequence[int], own: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Pages more than now that each will probably hold in each stretch, and the variance;
        [requests, stretches]. `pages`: those that need not be taken any more; `own`: those that
        its end gives back."""
        numbers = np.array([self._numbers(request) for request in requests], np.int64)
        row, known, most, said, least = numbers.reshape(-1, 5).T[:, :, None]
        length = said + 1 + self._from
        """Output tokens that it has at least, if it still runs then."""
        reach = self._lengths.reach(row, length)
        runs = np.where(length <= most, reach / reach[:, :1], 0.0)
        grown = np.maximum(known + np.minimum(self._to, most - said), least)
        back = np.array(own, np.int64)[:, None]
        held = -(-grown // self._pool.page_tokens) - np.array(pages, np.int64)[:, None] + back
        return runs * held - back, runs * (1 - runs) * held**2

    def _numbers(self, request: Request) -> tuple[int, int, int, int, int]:
        """Class of its length, tokens known, output tokens at most and so far, and the tokens that
        it keeps room for in any case: all, if it was promised that."""
        known, said = request.num_tokens, len(request.output_ids)
        final = self._scheduler.final_tokens(request)
        most = max(final - len(request.prompt_ids), said + 1)
        if self._scheduler.is_protected(request):
            return CERTAIN, known, most, said, final
        return request.length_class, known, most, said, 0
