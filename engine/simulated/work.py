"""What a step computes, as far as its time depends on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.scheduling.plan import PlanItem


class StepWork(NamedTuple):
    tokens: int
    rows: int
    """Each of them has its logits computed."""
    decodes: int
    """Rows whose output has begun, and that get its next token."""
    held: int
    """Tokens that are in the rows' caches when the step is over."""
    context: int
    """Tokens that rows of one token read, their own included."""
    chunk_context: int
    """The same of rows with more tokens: each of these reads all before it, and itself."""
    sealed: int
    """Pages that fill up."""


def work_of(items: Iterable[PlanItem], page_tokens: int) -> StepWork:
    tokens = rows = decodes = context = chunk_held = chunks = sealed = 0
    for request, start, count, samples, *_ in items:
        end = start + count
        rows += 1
        tokens += count
        if samples and end > len(request.prompt_ids):
            decodes += 1
        if count == 1:
            context += end
            sealed += not end % page_tokens
        else:
            chunk_held += end
            chunks += count * start + count * (count + 1) // 2
            sealed += end // page_tokens - start // page_tokens
    return StepWork(tokens, rows, decodes, context + chunk_held, context, chunks, sealed)
