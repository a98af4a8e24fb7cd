"""Room: whom the pool can take in beside those that run. No torch, no clock.

KnownRoom keeps what running requests know already and a page of growth for each. PredictedRoom
takes in of those only whom the pool will probably have room for later, too. A wrong answer costs
time (a preemption, an idle page), and changes no token.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request
from engine.scheduling.lengths import CERTAIN, OutputLengths
from engine.scheduling.pages_ahead import PagesAhead
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.waiting import turn

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


class PredictedRoom(KnownRoom):
    """What KnownRoom keeps, and beyond it the room that running requests will probably need, less
    what those give back that will probably have ended by then."""

    def __init__(self, scheduler: Scheduler, lengths: OutputLengths) -> None:
        super().__init__(scheduler)
        self._lengths = lengths
        self._ahead: PagesAhead | None = None
        """Made when it is first asked."""

    def pick(self, candidates: Sequence[Request]) -> Request | None:
        scheduler = self._scheduler
        fit = list(filter(self._fits, self._in_order(candidates)))
        if not fit or not scheduler.running:
            return next(iter(fit), None)
        self._ahead = ahead = self._ahead or PagesAhead(scheduler, self._lengths)
        for request, has_room in zip(fit, ahead.have_room(fit, [0] * len(fit)), strict=True):
            shared = 0 if has_room else scheduler.wanted(request) - scheduler.missing(request)
            if has_room or (shared and ahead.have_room([request], [shared])[0]):
                return request
        return None

    def take(self, request: Request) -> None:
        super().take(request)
        if self._ahead is not None:
            self._ahead.add(request)

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


def room_in(scheduler: Scheduler) -> Room:
    """By what the scheduler reserves, and by whether its predictions hold."""
    if not scheduler.grows:
        return Room(scheduler)
    if scheduler.predicts and scheduler.lengths is not None:
        return PredictedRoom(scheduler, scheduler.lengths)
    return KnownRoom(scheduler)
