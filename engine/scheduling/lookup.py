"""Prompt look-up: what followed the same tokens before, in the request's own prompt and output.

After Saxena's prompt lookup decoding (2023), with one difference: what it would have drafted is
followed and held against the tokens that come, whether it is computed or not. So how likely a
draft is right is known for each request, at no cost, also while drafts do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.request import Request
from engine.scheduling.odds import FORGET_ALL, Odds
from engine.scheduling.plan import NO_DRAFT, Draft

LONG, SHORT = 4, 2
"""Tokens that must be equal: the longer run is looked for first."""
CLASSES = (3, 5, 9, 17, 33)
"""Lengths of a match at which the next class of matches begins."""
FORGET = 0.98
"""Weight that a request's outcomes keep with each new one of their class."""
_CLASS = [sum(length >= edge for edge in CLASSES) for length in range(CLASSES[-1] + 1)]


def _class_of(length: int) -> int:
    return _CLASS[length] if length < len(_CLASS) else len(CLASSES)


@dataclass(slots=True)
class Trail:
    """One request's tokens, where each run of them was last, and the match that goes on now."""

    ids: list[int] = field(default_factory=list)
    last: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Runs of LONG and SHORT tokens → the place behind them."""
    place: int = -1
    """In `ids`: what comes next if the match goes on; -1 without a match."""
    length: int = 0
    """Tokens that are equal so far."""
    odds: list[Odds] = field(default_factory=lambda: [Odds() for _ in range(len(CLASSES) + 1)])
    """Of going on, by the match's class."""


class PromptLookup:
    def __init__(self) -> None:
        self._trails: dict[Request, Trail] = {}
        self._all = [Odds(1.0, 2.0) for _ in range(len(CLASSES) + 1)]  # as likely as not

    def depth(self, requests: int, most: int, step: float, row: float) -> int:
        """Looking costs next to nothing."""
        return most

    def draft(self, asked: Sequence[tuple[Request, int]]) -> list[Draft]:
        """For each request at most so many tokens."""
        return [self._draft(request, most) for request, most in asked]

    def _draft(self, request: Request, most: int) -> Draft:
        trail = self._trails.get(request)
        if trail is None:
            trail = self._trails[request] = Trail()
            for token in request.prompt_ids:
                self._extend(trail, token)
        for token in request.output_ids[len(trail.ids) - len(request.prompt_ids) :]:
            self._follow(trail, token)
        if trail.place < 0:
            return NO_DRAFT
        tokens = trail.ids[trail.place : trail.place + most]
        while len(tokens) < most:  # the match has come to the present: it goes on with itself
            tokens.extend(tokens[: most - len(tokens)])
        return Draft(tokens, [self._chance(trail, trail.length + n) for n in range(most)])

    def forget(self, request: Request) -> None:
        self._trails.pop(request, None)

    def __len__(self) -> int:
        return len(self._trails)

    def _follow(self, trail: Trail, token: int) -> None:
        """A token has come: hold it against the match, and look for another where it ends."""
        if trail.place >= 0:
            right = trail.ids[trail.place] == token
            kind = _class_of(trail.length)
            trail.odds[kind].note(right, FORGET)
            self._all[kind].note(right, FORGET_ALL)
            trail.place, trail.length = (trail.place + 1, trail.length + 1) if right else (-1, 0)
        self._extend(trail, token)
        if trail.place < 0:
            for size in (LONG, SHORT):
                place = trail.last.get(tuple(trail.ids[-size:]), -1)
                if place >= 0:
                    trail.place, trail.length = place, size
                    break

    def _extend(self, trail: Trail, token: int) -> None:
        """Runs are known once something has followed them."""
        ids, here = trail.ids, len(trail.ids)
        for size in (LONG, SHORT):
            if here >= size:
                trail.last[tuple(ids[-size:])] = here
        ids.append(token)

    def _chance(self, trail: Trail, length: int) -> float:
        kind = _class_of(length)
        return trail.odds[kind].among(self._all[kind])
