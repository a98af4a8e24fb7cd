"""Room: whom the pool can take in beside those that run. No torch, no clock.

KnownRoom keeps what running requests know already and a page of growth for each. PredictedRoom
looks ahead: how many pages will be held one step from now, two, eight, a hundred, when some have
grown and others have ended? A wrong answer costs time (a preemption, an idle page), and changes no
token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.request import Request
from engine.scheduling.lengths import CERTAIN, Floats, OutputLengths
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.waiting import turn

AHEAD = np.unique(np.concatenate([[0, 1], (4 * 2 ** np.arange(0, 18, 0.25)).astype(np.int64)]))
"""Steps from now at which it looks, up to a million."""
EQUAL_NS = 1_000_000_000
"""Requests whose turns are no further apart are equals: the shorter ones may go first."""


class Room:
    """Of one step, from its first admission to its last, where everybody is given room to the end
    when it starts: what is free is nobody's yet."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._pool = scheduler, scheduler.pool

    def pick(self, candidates: Sequence[Request]) -> Request | None:
        """The first of those whose turn it is that there is room for."""
        return next(filter(self._fits, candidates), None)

    def take(self, request: Request) -> None:
        """It has been started, and given the pages of its first tokens."""

    def _fits(self, request: Request) -> bool:
        scheduler, pool = self._scheduler, self._pool
        # Looking its prefix up costs more, and matters only where room is scarce.
        return pool.fits(scheduler.wanted(request)) or pool.fits(scheduler.missing(request))


class KnownRoom(Room):
    """Running requests keep room for what they know, and a page for each that can grow."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._claims = sum(map(scheduler.claim, scheduler.running.values()))

    def take(self, request: Request) -> None:
        self._claims += self._scheduler.claim(request)

    def _fits(self, request: Request) -> bool:
        """One that runs alone may have the whole pool: something always makes progress."""
        scheduler = self._scheduler
        if not scheduler.running:
            return super()._fits(request)
        free = self._pool.available - self._claims
        return scheduler.wanted(request) <= free or scheduler.missing(request) <= free


class PredictedRoom(Room):
    """Running requests keep the room that they will probably need, less what those give back that
    will probably have ended by then. What protected ones were promised stays promised."""

    def __init__(self, scheduler: Scheduler, lengths: OutputLengths) -> None:
        super().__init__(scheduler)
        self._lengths = lengths
        looks = int(np.searchsorted(AHEAD, scheduler.max_model_len)) + 1
        self._from, self._to = AHEAD[: looks - 1], AHEAD[1:looks] - 1
        """Steps ahead: who still runs at the first of each stretch may hold what it needs at the
        last."""
        running = list(scheduler.running.values())
        pages = [len(request.pages) for request in running]
        own = [len(request.pages) - request.prefix_pages for request in running]
        more, variance = self._demand(running, pages, own)
        self._more, self._variance = more.sum(axis=0), variance.sum(axis=0)
        """Pages held at each step ahead, more than when this was made."""
        self._free = self._left = self._pool.available
        """Pages that nobody held when this was made, and that nobody holds now."""

    def pick(self, candidates: Sequence[Request]) -> Request | None:
        """Among equals the shorter ones go first."""
        scheduler = self._scheduler
        if not scheduler.running:
            return super().pick(self._in_order(candidates))
        asked = self._in_order(candidates)
        for request, fits in zip(asked, self._fit(asked, [0] * len(asked)), strict=True):
            shared = 0 if fits else scheduler.wanted(request) - scheduler.missing(request)
            if fits or (shared and self._fit([request], [shared])[0]):
                return request
        return None

    def take(self, request: Request) -> None:
        taken, self._left = self._left - self._pool.available, self._pool.available
        more, variance = self._demand([request], [len(request.pages) - taken], [0])
        self._more += more[0]
        self._variance += variance[0]

    def _in_order(self, candidates: Sequence[Request]) -> Sequence[Request]:
        """Among equals the shorter ones first, behind those that were preempted."""
        latest = turn(candidates[0]) + EQUAL_NS
        equals = [request for request in candidates if turn(request) <= latest]
        if len(equals) < 2:
            return candidates
        later = [request for request in candidates if turn(request) > latest]
        return [*sorted(equals, key=lambda r: (not r.preemptions, self._expected(r))), *later]

    def _expected(self, request: Request) -> int:
        """About how many tokens its output will have."""
        longest = self._scheduler.final_tokens(request) - len(request.prompt_ids)
        row = request.length_class
        return longest if row == CERTAIN else min(self._lengths.median(row), longest)

    def _fit(self, requests: Sequence[Request], shared: Sequence[int]) -> list[bool]:
        """Of each by itself: there will probably be room now and at each step ahead. `shared` of
        its pages are held by others already."""
        more, variance = self._demand(requests, shared, [0] * len(requests))
        risk = self._lengths.margin * np.sqrt(self._variance + variance)
        fits: list[bool] = (self._more + more + risk <= self._free).all(axis=1).tolist()
        return fits

    def _demand(
        self, requests: Sequence[Request], pages: Sequence[int], own: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Pages more than now that each will probably hold at each step ahead, and the variance;
        [requests, steps]. `pages`: those that need not be taken any more; `own`: those that its
        end gives back."""
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


def room_in(scheduler: Scheduler) -> Room:
    """By what the scheduler reserves, and by whether its predictions hold."""
    if not scheduler.grows:
        return Room(scheduler)
    if scheduler.predicts and scheduler.lengths is not None:
        return PredictedRoom(scheduler, scheduler.lengths)
    return KnownRoom(scheduler)
