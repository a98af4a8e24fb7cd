"""A prompt in, a whole answer out: the forms that callers use."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import RequestError
from engine.request import FinishReason, Stamps
from engine.stream import Stream

Prompt = str | list[int] | list[dict[str, str]]
"""Text, token ids, or a chat: [{"role": …, "content": …}, …]."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt that has been tokenized, to be submitted once or several times."""

    ids: list[int]
    start: int
    end: int
    """Monotonic ns: when the tokenizer had it."""


@dataclass(frozen=True)
class Completion:
    """The whole output of one request."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    stamps: Stamps
    error: str | None = None


def completion(stream: Stream, timeout: float | None = None) -> Completion:
    """Wait for all of a stream, as one answer. TimeoutError after `timeout` seconds."""
    event = stream.result(timeout)
    assert event.finish_reason is not None and stream.stamps is not None
    return Completion(
        event.text,
        event.token_ids,
        event.finish_reason,
        stream.prompt_tokens,
        stream.stamps,
        event.error,
    )


def check_prompt(prompt: object) -> None:
    """RequestError unless it is a Prompt."""
    if isinstance(prompt, str):
        return
    if isinstance(prompt, list):
        if all(isinstance(t, int) and not isinstance(t, bool) and t >= 0 for t in prompt):
            return
        if all(isinstance(m, dict) for m in prompt):
            return
    raise RequestError(
        "prompt: expected text, a list of token ids, or a list of chat messages, "
        f"got {type(prompt).__name__}"
    )


def is_token_ids(prompt: Prompt) -> bool:
    return isinstance(prompt, list) and (not prompt or isinstance(prompt[0], int))
