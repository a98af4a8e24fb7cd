"""What an OpenAI-compatible server sends back: events, ends and usage, read once for all who ask.

An end is an end: one of the finish reasons that servers document, and then [DONE] or the body's
own end. Bookkeeping never spoils an answer: of usage that is null, zero, partial, a float or a
text what is sound is taken, and the rest is not known.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from engine.remote.errors import message_of, said
from engine.request import FinishReason

_LINE_END = re.compile(rb"\r\n|\r|\n")
_FIELD = re.compile(rb"[A-Za-z][\w-]*|")
"""A name that a field may have; none at all before the colon makes a comment."""
MAX_EVENT = 4 << 20
"""Bytes of an event that are held at most."""
DONE = "[DONE]"
BROKE_OFF = "the answer broke off"
ENDS = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "stop_str": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "tool_use": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "content_filter": FinishReason.STOP,
    "repetition": FinishReason.STOP,
    "complete": FinishReason.STOP,
    "refusal": FinishReason.STOP,
    "sensitive": FinishReason.STOP,
    "safety": FinishReason.STOP,
    "recitation": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "limit": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "kv_capacity": FinishReason.KV_CAPACITY,
    "abort": FinishReason.CANCELLED,
    "aborted": FinishReason.CANCELLED,
    "cancelled": FinishReason.CANCELLED,
    "timeout": FinishReason.TIMEOUT,
    "error": FinishReason.ERROR,
    "insufficient_system_resource": FinishReason.ERROR,
    "network_error": FinishReason.ERROR,
}
"""The finish reasons that OpenAI, vLLM, SGLang, llama.cpp, TGI, LMDeploy, TensorRT-LLM, Mistral,
DeepSeek, Anthropic, Gemini, Cohere, Zhipu and EveWatch document."""
ENDED_BADLY = (FinishReason.CANCELLED, FinishReason.TIMEOUT, FinishReason.ERROR)
"""An end that is documented, but of an answer that is not whole."""


class BadStream(Exception):
    """Bytes that are no stream of completion events; its text says why."""


class EventReader:
    """`feed` it chunks cut anywhere, in the middle of a character too; it gives whole events.

    As the HTML standard has it: lines end in LF, CR or both, fields of other names are passed
    over. An event that is called error comes as an object with an `error`. Raises BadStream for
    what is no event stream.
    """

    def __init__(self) -> None:
        self._rest, self._last = b"", b""
        """Of an unfinished line, and the last byte that came."""
        self._begun = False
        self._name, self._data = b"", list[bytes]()

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of every event that this chunk completes."""
        if self._last == b"\r":  # that line has ended; its LF came later
            chunk, self._last = chunk.removeprefix(b"\n"), b""
        lines = _LINE_END.split(self._rest + chunk)
        self._rest, self._last = lines.pop(), chunk[-1:] or self._last
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT:
            raise BadStream(f"an event of more than {MAX_EVENT >> 20} MiB")
        for line in lines:
            if not self._begun:
                line, self._begun = line.removeprefix(BOM_UTF8), True
            if line:
                self._take(line)
            elif any(map(bytes.strip, self._data)):
                yield self._event()
            else:
                self._name, self._data = b"", []

    def end(self) -> Iterator[str]:
        """The last event, of a body that ends without an empty line; none where it is cut."""
        with suppress(BadStream):
            yield from self.feed(b"\n\n")

    def _take(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._name = value.strip()
        elif not (colon and _FIELD.fullmatch(name)):
            raise BadStream(f"a line that is no event: {line[:60]!r}")

    def _event(self) -> str:
        data, name = b"\n".join(self._data), self._name
        self._name, self._data = b"", []
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise BadStream(f"not UTF-8 at byte {error.start} of an event") from error
        return json.dumps({"error": said(data)}) if name == b"error" else text


def event_of(data: str) -> dict[str, Any]:
    """The object of an event; raises BadStream for what has not the form of one."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadStream(f"an event that is no JSON: {data[:60]!r}") from error
    if not isinstance(event, dict) or not isinstance(event.get("choices") or [], list):
        raise BadStream(f"an event of another form: {data[:60]!r}")
    if not all(isinstance(choice, dict) for choice in event.get("choices") or ()):
        raise BadStream("a choice that is no object")
    return event


def error_of(event: dict[str, Any]) -> str | None:
    """What an event says went wrong; older vLLM sends an object called error."""
    if event.get("error"):
        return message_of(event) or str(event["error"])
    if event.get("object") == "error":
        return message_of(event) or "error"
    return None


def end_of(choice: dict[str, Any]) -> str | None:
    """The choice's documented finish reason; None for "", "null" and whatever is none."""
    reason = choice.get("finish_reason")
    if isinstance(reason, dict):  # SGLang's own form
        reason = reason.get("type")
    return reason if isinstance(reason, str) and reason.lower() in ENDS else None


def text_of(choice: dict[str, Any]) -> str:
    """Of a streamed or whole choice of either API."""
    part = choice.get("delta") or choice.get("message") or choice
    if not isinstance(part, dict):
        return ""
    found = part.get("content") or part.get("text") or part.get("refusal")
    if isinstance(found, list):  # parts, of which those with a text are text
        found = "".join(text_of(one) for one in found if isinstance(one, dict))
    return found.encode("utf-8", "replace").decode() if isinstance(found, str) else ""


@dataclass
class Usage:
    """What a server counted, as far as it is sound; None: not known."""

    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    """Of the prompt, those that the server's prefix cache had."""

    def take(self, event: dict[str, Any]) -> None:
        """The newest sound counts win: servers send usage once, or with every event."""
        groq = event.get("x_groq")
        for where in (groq, *(event.get("choices") or ()), event):  # Moonshot: in a choice
            counts = where.get("usage") if isinstance(where, dict) else None
            if isinstance(counts, dict):
                self._take(counts)

    def _take(self, counts: dict[str, Any]) -> None:
        prompt, output, total = (
            next(filter(None, (_count(counts.get(f"{name}_tokens")) for name in names)), None)
            for names in (("prompt", "input"), ("completion", "output"), ("total",))
        )
        if total and output is None and prompt and total > prompt:
            output = total - prompt
        if total and prompt is None and output and total > output:
            prompt = total - output
        self.prompt, self.output = prompt or self.prompt, output or self.output
        cached = _cached(counts)
        if cached is not None:
            self.cached = cached if cached <= (self.prompt or cached) else None


def _cached(counts: dict[str, Any]) -> int | None:
    """As OpenAI, Moonshot, DeepSeek and Anthropic name it; zero is known too."""
    places = [counts.get(f"{name}_tokens_details") for name in ("prompt", "input")] + [counts]
    names = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
    for place in places:
        for name in names if isinstance(place, dict) else ():
            value = place.get(name)
            if type(value) in (int, float) and value == 0:
                return 0
            if (found := _count(value)) is not None:
                return found
    return None


def _count(value: Any) -> int | None:
    """A whole number of tokens above 0, also as 9.0 or "9"."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    sound = math.isfinite(number) and 0 < number < 1 << 40 and number == int(number)
    return int(number) if sound else None
