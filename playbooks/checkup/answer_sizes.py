"""What the clients of a load saw of their answers' sizes: other lengths than were asked for, counts
that cannot be, and answers that came all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.remote.answer import ENDS
from engine.request import FinishReason
from playbooks.load.record import RequestRecord

SLACK = 2
"""Tokens: servers count beginnings and ends in different ways."""
PROMPT_LEAST = 0.9
"""Tokens a word; no vocabulary has many words of a prompt in fewer."""
LEAST = 2
"""So many alike are no chance."""
EVENTS = 6
"""An answer of so many pieces has a course."""
TAKES_MS = 50.0
"""And takes so long: pieces of a shorter one may well come together."""
AT_ONCE, PIECE_MS = 0.05, 0.5
"""Of an answer's time: all its pieces within less came in one, if it took no longer to read each
than this: after a long wait in a queue a fast engine is quick too."""

Odd = Callable[[RequestRecord], str | None]


def wrong_lengths(records: Sequence[RequestRecord]) -> tuple[str, ...] | None:
    """In words, a line a kind; None where nothing was answered to its end."""
    done = [r for r in records if r.completed]
    if not done:
        return None
    lines = []
    for odd, said in KINDS.items():
        found = [text for r in done if (text := odd(r)) is not None]
        if len(found) >= LEAST:
            lines.append(f"{said(len(found), len(done))}: {found[0]}")
    return tuple(lines)


def _longer(r: RequestRecord) -> str | None:
    over = r.output_tokens > r.output_asked + SLACK
    return f"{r.output_tokens} tokens, {r.output_asked} asked for" if over else None


def _shorter(r: RequestRecord) -> str | None:
    """Its server says that it ended because it was as long as it may be."""
    by_length = ENDS.get((r.finish_reason or "").lower()) is FinishReason.LENGTH
    had = max(r.output_tokens, len(r.events))
    under = by_length and r.usage and had < r.output_asked - SLACK
    return f"{had} tokens, {r.output_asked} asked for" if under else None


def _undercounted(r: RequestRecord) -> str | None:
    under = r.usage and r.output_tokens < len(r.events) - SLACK
    return f"{r.output_tokens} by its usage, {len(r.events)} pieces came" if under else None


def _cut_prompt(r: RequestRecord) -> str | None:
    had = r.prompt_tokens + (r.cached_tokens or 0)
    under = r.prompt_usage and had < PROMPT_LEAST * r.prompt_asked - SLACK
    return f"{had} tokens by its usage, about {r.prompt_asked} sent" if under else None


KINDS: dict[Odd, Callable[[int, int], str]] = {
    _longer: lambda n, of: f"{n:d} of {of:d} answers were longer than they may be",
    _shorter: lambda n, of: f"{n:d} of {of:d} answers ended by length before they were as long",
    _undercounted: lambda n, of: f"{n:d} of {of:d} answers had more pieces than tokens",
    _cut_prompt: lambda n, of: f"{n:d} of {of:d} prompts had fewer tokens than were sent",
}


def at_once_share(records: Sequence[RequestRecord]) -> float | None:
    """Of the answers with a course, those whose pieces came together at their end. None: too few
    to tell."""
    long = [r for r in records if r.completed and len(r.events) >= EVENTS
            and r.last - r.sent > TAKES_MS * 1e6]  # fmt: skip
    if len(long) < EVENTS:
        return None
    return sum(map(_at_once, long)) / len(long)


def _at_once(r: RequestRecord) -> bool:
    took = r.last - r.first
    return took < AT_ONCE * (r.last - r.sent) and took < PIECE_MS * 1e6 * (len(r.events) - 1)
