"""The steps of an engine as its clients see them: tokens of many streams that come together.

An engine sends every running request its next token when a step is over. So the moments at which
tokens come, taken together over all streams, are the ends of its steps, and who got one of them is
what the step computed. That holds while every event carries one token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from engine.simulated.work import StepWork
from playbooks.load.record import RequestRecord

TOGETHER = 0.4
"""Of a usual step: tokens that come within it are of the same step."""


class Token(NamedTuple):
    at: int
    """Monotonic ns."""
    record: RequestRecord
    number: int
    """Of the request's output: 0 is the first."""


class StreamedStep(NamedTuple):
    work: StepWork
    ns: int


def one_token_each(records: Sequence[RequestRecord]) -> bool:
    """Every event carries one token, as far as the target counts them."""
    tokens = sum(r.output_tokens for r in records)
    return abs(sum(len(r.events) for r in records) - tokens) <= 0.02 * tokens


def streamed_steps(records: Sequence[RequestRecord], page_tokens: int) -> Iterator[StreamedStep]:
    """Steps between two of which something went on running, and in which no prompt was only begun:
    how much of such a prompt a step computed is not to be seen."""
    groups = list(_groups([r for r in records if r.completed]))
    for before, here, after in zip([None, *groups], groups, groups[1:], strict=False):
        went_on = {id(t.record) for t in here} & {id(t.record) for t in after if t.number}
        begins = here[-1].at
        came = before[-1].at if before is not None else 0
        if went_on and _is_clean(records, came, begins, after):
            yield StreamedStep(_work(after, page_tokens), _middle(after) - _middle(here))


def _groups(records: Sequence[RequestRecord]) -> Iterator[list[Token]]:
    """Tokens of one step, in order of time."""
    tokens = [Token(at, r, i) for r in records for i, at in enumerate(r.events)]
    tokens.sort(key=lambda token: token.at)
    gaps = [gap for r in records for gap in np.diff(r.events)]
    within = TOGETHER * float(np.median(gaps)) if gaps else 0.0
    group: list[Token] = []
    seen: set[int] = set()
    for token in tokens:
        if group and (token.at - group[0].at > within or id(token.record) in seen):
            yield group
            group, seen = [], set()
        group.append(token)
        seen.add(id(token.record))
    if group:
        yield group


def _is_clean(
    records: Sequence[RequestRecord], came: int, begins: int, group: Sequence[Token]
) -> bool:
    """No prompt waited when the step began, but those that it computed as a whole: they had come
    while the step before was under way."""
    ends = group[-1].at
    done = {id(t.record) for t in group if t.number == 0}
    for record in records:
        if record.sent <= begins and record.first > begins:
            if id(record) not in done or record.sent < came:
                return False
            if record.first > ends:
                return False
    return True


def _work(group: Sequence[Token], page_tokens: int) -> StepWork:
    decodes = [t.record.prompt_tokens + t.number for t in group if t.number]
    prompts = [t.record.prompt_tokens for t in group if not t.number]
    context = sum(decodes)
    return StepWork(
        tokens=len(decodes) + sum(prompts),
        rows=len(group),
        decodes=len(decodes),
        held=context + sum(prompts),
        context=context,
        chunk_context=sum(n * (n + 1) // 2 for n in prompts),
        sealed=sum(not n % page_tokens for n in decodes) + sum(n // page_tokens for n in prompts),
    )


def _middle(group: Sequence[Token]) -> int:
    return int(np.median([t.at for t in group]))


def lone_prompts(records: Sequence[RequestRecord]) -> Iterator[tuple[int, int]]:
    """(prompt tokens, ns to the first token) of requests that met an idle engine."""
    for record in records:
        others = (r for r in records if r is not record and r.sent < record.sent)
        if record.completed and all(r.last < record.sent for r in others):
            yield record.prompt_tokens, record.first - record.sent
