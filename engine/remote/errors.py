"""Why a scrape gave no numbers. Each ends as a source state with its reason, none as a crash.

Trouble
├── Unreachable    nobody answers, or answers with an error
├── Unparsable     what came back is no metrics page, or only a part of one
└── WrongEngine    a sound page, but of no engine that we know or not of the one expected
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, ClassVar

import httpx

from engine.errors import EngineError
from engine.snapshot import SourceState


class Trouble(Exception):
    """Its text is one line for the operator."""

    state: ClassVar[SourceState]


class Unreachable(Trouble):
    state = SourceState.UNREACHABLE

    def __init__(self, reason: str, certain: bool = True) -> None:
        super().__init__(reason)
        self.certain = certain
        """False for what may be a hiccup (a time limit): the first one makes numbers stale."""


class Unparsable(Trouble):
    state = SourceState.UNPARSABLE


class WrongEngine(Trouble):
    state = SourceState.WRONG_ENGINE


class NotAvailable(EngineError):
    """Asked of an external engine: something that only the inside of an engine can do."""


DETAIL = 200
"""Characters of a server's own reason that are kept."""
COMPLAINT_BYTES = 4096


def complaint(answer: httpx.Response) -> str:
    """What a server says is wrong, of an answer that streams: one line, "" for nothing or HTML."""
    body = b""
    with suppress(httpx.HTTPError, httpx.StreamError):
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > COMPLAINT_BYTES:
                break
    return said(body)


def said(body: bytes) -> str:
    """The message in the body of a refusal, as one line of printable text."""
    text = body[:COMPLAINT_BYTES].decode("utf-8", "replace").strip()
    with suppress(ValueError, RecursionError):
        text = _message(json.loads(text)) or text
    return "" if text.startswith("<") else one_line(text)


def one_line(text: str) -> str:
    """Foreign text for the operator's screen: no controls, no line ends, of bounded length."""
    text = re.sub(r"^\[Errno -?\d+\] ", "", text)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:DETAIL]


def _message(answer: Any) -> str | None:
    """As OpenAI's servers, FastAPI and TGI word it."""
    for key in ("error", "detail", "message", "msg"):
        if isinstance(answer, dict) and answer.get(key):
            answer = answer[key]
            return answer if isinstance(answer, str) else _message(answer) or json.dumps(answer)
    return None
