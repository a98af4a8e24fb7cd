"""What a request asks of the sampler, in the engine's own words."""

from __future__ import annotations

from collections.abc import Sequence

from console.server.schema import Common
from engine.request import MAX_TOKENS_LIMIT, Priority, SamplingParams
from engine.text.tokenizer import Tokenizer

TOP_P_LEAST = 1e-6
"""What 0 stands for: the likeliest token alone."""


def sampling(asked: Common, room: int, bad_words: Sequence[tuple[int, ...]]) -> SamplingParams:
    """`room`: output tokens that fit."""
    room = min(room, MAX_TOKENS_LIMIT)
    longest = min(asked.longest or room, room)
    stop = asked.stop if isinstance(asked.stop, list) else [asked.stop] if asked.stop else []
    return SamplingParams(
        max_tokens=longest,
        min_tokens=min(asked.min_tokens or 0, longest),
        temperature=_or(asked.temperature, 1.0),
        top_k=max(asked.top_k or 0, 0),  # vLLM's -1 is off as well
        top_p=max(_or(asked.top_p, 1.0), TOP_P_LEAST),
        min_p=_or(asked.min_p, 0.0),
        presence_penalty=_or(asked.presence_penalty, 0.0),
        frequency_penalty=_or(asked.frequency_penalty, 0.0),
        repetition_penalty=_or(asked.repetition_penalty, 1.0),
        logit_bias=tuple((int(token), by) for token, by in (asked.logit_bias or {}).items()),
        allowed_token_ids=tuple(asked.allowed_token_ids or ()),
        bad_words=tuple(bad_words),
        seed=None if asked.seed is None else asked.seed & (2**63 - 1),
        stop=tuple(stop),
        stop_token_ids=tuple(asked.stop_token_ids or ()),
        include_stop=bool(asked.include_stop_str_in_output or asked.no_stop_trim),
        ignore_eos=bool(asked.ignore_eos),
        logprobs=asked.likeliest,
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def runs_of(words: Sequence[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Token ids of each word, at a text's start and behind a blank."""
    forms = [form for word in words for form in (word, f" {word.lstrip()}")]
    runs = [tuple(tokenizer.encode(form, add_special=False)) for form in forms]
    return list(dict.fromkeys(run for run in runs if run))


def priority(value: int | None) -> Priority:
    """vLLM's numbers, lower first and 0 usual, on this engine's three levels."""
    if not value:
        return Priority.NORMAL
    return Priority.HIGH if value < 0 else Priority.LOW
