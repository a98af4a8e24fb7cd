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
from html import unescape
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
_MARKUP = re.compile(
    r"<(head|style|script)\b.*?(</\1\s*>|$)|<!--.*?(-->|$)|<[^>]*(>|$)", re.S | re.I
)
"""Of HTML and XML what is not for readers; it may be cut anywhere."""
_KEYS = ("error", "errors", "detail", "details", "message", "msg", "error_description", "reason")


def complaint(answer: httpx.Response) -> str:
    """What a server says is wrong, of an answer that streams: one line, "" for nothing."""
    body = b""
    with suppress(httpx.HTTPError, httpx.StreamError):
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > COMPLAINT_BYTES:
                break
    return said(body)


def said(body: bytes) -> str:
    """The message in the body of a refusal, as one line of printable text."""
    text = body[:COMPLAINT_BYTES].decode("utf-8-sig", "replace").strip()
    with suppress(ValueError, RecursionError):
        text = message_of(json.loads(text)) or text
    if text.startswith("<"):
        text = unescape(_MARKUP.sub(" ", text))
    return one_line(text)


def one_line(text: str) -> str:
    """Foreign text for the operator's screen: no controls, no line ends, of bounded length."""
    text = re.sub(r"^\[Errno -?\d+\] ", "", text)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:DETAIL]


def message_of(answer: Any) -> str | None:
    """What an answer says went wrong, as OpenAI's servers, FastAPI, TGI and gateways word it."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, list):
        return next(filter(None, map(message_of, answer)), None)
    found = map(answer.get, _KEYS) if isinstance(answer, dict) else ()
    told = [value for value in found if value and isinstance(value, str | dict | list)]
    return next(filter(None, map(message_of, told)), None) or (
        json.dumps(told[0]) if told else None
    )
