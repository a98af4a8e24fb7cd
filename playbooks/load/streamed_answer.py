"""One streamed answer of an endpoint, event by event, into the record of its request."""

from __future__ import annotations

from typing import Any

from engine.remote.answer import (
    DONE,
    ENDED_BADLY,
    ENDS,
    Usage,
    end_of,
    error_of,
    event_of,
    text_of,
)
from engine.remote.errors import one_line
from playbooks.load.record import EMPTY, RequestRecord, now_ns
from playbooks.load.targets import Failed

WRITTEN = (
    "text", "content", "reasoning_content", "reasoning", "reasoning_details", "tool_calls",
    "function_call", "refusal", "audio",
)  # fmt: skip
"""Fields of a choice in which servers send what the model wrote."""


class StreamedAnswer:
    """Raises Failed for what makes no whole answer, and BadStream for what is no event."""

    def __init__(self, record: RequestRecord, chat: bool) -> None:
        self._record, self._chat = record, chat
        self._closed = False
        self._last = ""
        """The newest finish reason that is none."""
        self._usage = Usage()

    @property
    def done(self) -> bool:
        """It has had its end and [DONE]: what the connection does afterwards is no matter."""
        return self._closed and self._record.finish_reason is not None

    def take(self, data: str) -> None:
        now = now_ns()
        if data.strip() == DONE:
            self._closed = True
            return
        event = event_of(data)
        if error := error_of(event):
            raise Failed("api_error", one_line(error))
        self._usage.take(event)
        for choice in event.get("choices") or ():
            end, wrote = end_of(choice), _has_output(choice.get("delta") if self._chat else choice)
            if wrote:
                self._record.events.append(now)
                if self._record.text is not None:
                    self._record.text.append(text_of(choice))
            if end or wrote:  # what is followed by more was no end
                self._record.finish_reason = end
            self._last = str(choice.get("finish_reason") or self._last)

    def finish(self) -> None:
        """At the stream's proper end: was it whole, and how many tokens were there?"""
        record, usage = self._record, self._usage
        if record.finish_reason is None:
            last = f": {one_line(self._last)!r} is no finish reason" if self._last else ""
            raise Failed("dropped", f"the stream ended before the answer was finished{last}")
        record.usage, record.prompt_usage = usage.output is not None, usage.prompt is not None
        record.prompt_tokens = usage.prompt or record.prompt_asked
        record.output_tokens = usage.output or len(record.events)
        record.cached_tokens = usage.cached
        if ENDS[record.finish_reason.lower()] in ENDED_BADLY:
            raise Failed("aborted", f"the server ended it: {record.finish_reason}")
        if not record.events:
            raise Failed(EMPTY, "the answer has no text")


def _has_output(part: Any) -> bool:
    """Text, reasoning or a tool call: something that the model wrote."""
    if not isinstance(part, dict):
        return False
    return any(map(part.get, WRITTEN))
