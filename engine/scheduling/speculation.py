"""Speculation: drafts of tokens that may come next, as many as pay for themselves. No torch.

A draft's tokens are computed behind the newest known one, in the same step, and each of their
rows is sampled with the random number of its own place in the output. So the token that comes of
a row is the one that would have come without the draft, and a draft token is right exactly when it
is that token (Leviathan et al. 2023 accept by probability; here nothing is left to chance). What a
draft changes is when tokens come, never which.

The own-page rule stays as it is: a draft never fills its request's open page, so a page is sealed
with known tokens only, and what was wrong in it is overwritten by the next step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.request import Request
from engine.scheduling.plan import Draft, Drafter, Plan, PlanItem
from engine.scheduling.stepcost import StepTimes

PATIENCE = 200
"""Steps without a draft that pays, although there were drafts, before that is said."""
MARGIN = 1.02
"""Drafts are computed where they give so many times the tokens a second: estimates err."""


class Speculation:
    """Which requests get drafts in a step, and how long ones: those whose tokens gain time."""

    def __init__(self, drafter: Drafter, most: int, page_tokens: int) -> None:
        self.drafter, self.most, self._page_tokens = drafter, most, page_tokens
        self.times = StepTimes()
        self.pays = True
        """Whether drafts are computed now, where there are any."""
        self._declined = 0
        """Steps one after another in which there were drafts and none was worth its cost."""

    def extend(self, plan: Plan, budget: int) -> None:
        """Give decodes of `plan` drafts within `budget` tokens."""
        asked = [
            (place, item.request, room)
            for place, item in enumerate(plan.items)
            if item.tokens == 1 and item.samples and item.request.output_ids
            and (room := self._room(item)) > 0
        ]  # fmt: skip
        step, row = self.times.of(plan.tokens), self.times.row
        depth = self.drafter.depth(len(asked), self.most, step, row) if asked and budget > 0 else 0
        drafts: Sequence[Draft] = ()
        if depth:
            drafts = self.drafter.draft([(r, min(room, depth)) for _, r, room in asked])
        if depth and not any(draft.tokens for draft in drafts):
            return
        lengths = self._lengths([draft.odds for draft in drafts], plan, budget)
        if asked and budget > 0:
            self._declined = 0 if any(lengths) else self._declined + 1
            self.pays = self._declined < PATIENCE
        for (place, _, _), draft, length in zip(asked, drafts, lengths, strict=False):
            if length:
                item = plan.items[place]
                plan.items[place] = item._replace(
                    tokens=1 + length, samples=1 + length, draft=tuple(draft.tokens[:length])
                )

    @property
    def state(self) -> str:
        """For the operator, in one line."""
        if self.pays:
            return "speculation: drafts pay again"
        return "speculation: no draft has been worth its cost for a while; they are not computed"

    def _room(self, item: PlanItem) -> int:
        """Draft tokens that neither fill the open page nor reach beyond the request's end."""
        request, size = item.request, self._page_tokens
        page = size - 1 - (item.start + 1) % size if (item.start + 1) % size else 0
        return min(self.most, page, request.ends_at - len(request.output_ids) - 1)

    def _lengths(self, odds: Sequence[Sequence[float]], plan: Plan, budget: int) -> list[int]:
        """As many of the likeliest tokens as give the most tokens a second."""
        chances = []
        for place, chain in enumerate(odds):
            chance = 1.0
            for depth, one in enumerate(chain):
                chance *= one
                chances.append((-chance, depth, place))
        chances.sort()
        rows, times = plan.tokens, self.times
        expected = float(sum(bool(item.samples) for item in plan.items))
        best, most = 0, MARGIN * expected / times.of(rows)
        for count, (chance, _, _) in enumerate(chances[:budget], 1):
            expected -= chance
            rate = expected / times.of(rows + count)
            if rate > most:
                best, most = count, rate
        lengths = [0] * len(odds)
        for _, _, place in chances[:best]:
            lengths[place] += 1
        return lengths


def verified(
    items: Iterable[PlanItem], tokens: Sequence[int | None]
) -> tuple[list[tuple[Request, int | None]], dict[str, int]]:
    """Of the sampled rows' `tokens`, those that stand, in order; and how many of each draft's.

    The first row of a draft stands; each later one while the draft before it was right. What is
    not finite behind a draft counts as wrong: the next step computes that row again.
    """
    stand: list[tuple[Request, int | None]] = []
    kept: dict[str, int] = {}
    row = 0
    for request, _, _, samples, _, draft in items:
        if samples:
            stand.append((request, tokens[row]))
            count = 1
            for guess, before, token in zip(draft, tokens[row:], tokens[row + 1 :], strict=False):
                if guess != before or token is None:
                    break
                stand.append((request, token))
                count += 1
            if draft:
                kept[request.id] = count
            row += samples
    return stand, kept
