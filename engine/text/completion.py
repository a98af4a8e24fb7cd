"""A prompt in, a whole answer out: the forms that callers use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from engine.errors import RequestError
from engine.request import FinishReason, Stamps
from engine.stream import Stream

Messages = Sequence[Mapping[str, Any]]
"""Each {"role": …, "content": …}, the oldest first."""


@dataclass(frozen=True)
class Chat:
    """Messages, and what a request says of their rendering."""

    messages: Messages
    add_generation_prompt: bool = True
    """The text ends where an answer begins."""
    continue_final: bool = False
    """It ends within the last message instead, which the answer continues."""
    names: Mapping[str, Any] = field(default_factory=dict)
    """Further ones for the template, as `enable_thinking`."""


Prompt = str | list[int] | list[dict[str, str]] | Chat
"""Text, token ids, or a chat: [{"role": …, "content": …}, …], or that and how to render it."""


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
    if isinstance(prompt, str | Chat):
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


def as_chat(chat: Chat | Messages) -> Chat:
    """RequestError unless its messages are a list of roles with texts."""
    made = chat if isinstance(chat, Chat) else Chat(chat)
    check(made.messages)
    return made


def check(messages: object) -> None:
    """RequestError unless `messages` is a list of roles with texts."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages: expected a list with at least one message")
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestError(f"messages[{number}]: expected a text 'role'")
        is_bare = message.get("content", "") is None and message["role"] == "assistant"
        if not isinstance(message.get("content"), str) and not is_bare:
            raise RequestError(f"messages[{number}]: expected a text 'content'")


def is_token_ids(prompt: Prompt) -> TypeGuard[list[int]]:
    return isinstance(prompt, list) and (not prompt or isinstance(prompt[0], int))
