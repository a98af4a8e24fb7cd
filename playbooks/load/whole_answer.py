"""One answer of an endpoint in one piece, and its counts into the record of its request."""

from __future__ import annotations

from typing import Any

from engine.remote.answer import (
    ENDED_BADLY,
    ENDS,
    BadStream,
    Usage,
    end_of,
    error_of,
    event_of,
)
from engine.remote.errors import one_line
from playbooks.load.record import RequestRecord
from playbooks.load.targets import Failed


def whole_answer(text: str, record: RequestRecord) -> dict[str, Any]:
    """Its first choice. Raises Failed for what is no answer, and BadStream for what is no JSON.

    The record has no event: when tokens came is not known, and so it has no latency.
    """
    answer = event_of(text)
    if error := error_of(answer):
        raise Failed("api_error", one_line(error))
    choices = answer.get("choices") or ()
    if not choices:
        raise BadStream(f"an answer without a choice: {text[:60]!r}")
    choice, usage = dict(choices[0]), Usage()
    usage.take(answer)
    record.usage, record.prompt_usage = usage.output is not None, usage.prompt is not None
    record.prompt_tokens, record.output_tokens = usage.prompt or 0, usage.output or 0
    record.cached_tokens, record.finish_reason = usage.cached, end_of(choice)
    if record.finish_reason is None:
        raise Failed("dropped", "the answer has no finish reason")
    if ENDS[record.finish_reason.lower()] in ENDED_BADLY:
        raise Failed("aborted", f"the server ended it: {record.finish_reason}")
    return choice
