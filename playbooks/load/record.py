"""What is known of one request of a load: when it was meant, sent and answered, and how long."""

from __future__ import annotations

import asyncio
import json
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Self

import numpy as np

from engine.errors import ConfigError
from engine.paths import open_private
from engine.request import Stamps

SCHEMA = 1
INTERRUPTED = "interrupted"
"""Finish reason of a request that was still open when the run was stopped."""
NOT_SENT = "target"
"""Kind of failure of a request with which the run ended: nothing more could be sent, or was to."""
EMPTY = "no_output"
"""Kind of failure of a whole answer without text: it has no latency, so it serves no load; but a
model may end at once, and nothing is wrong with a target whose model does."""


def now_ns() -> int:
    """The running loop's clock: monotonic, the engine's own, and a virtual one in tests."""
    return int(asyncio.get_running_loop().time() * 1e9)


@dataclass(slots=True)
class RequestRecord:
    """Times are monotonic nanoseconds, 0 until they happen. Latencies run from `scheduled`."""

    index: int
    scheduled: int
    """When it was to be sent."""
    prompt_asked: int
    output_asked: int
    sent: int = 0
    events: array[int] = field(default_factory=lambda: array("q"))
    """When tokens came: one event each in this process, one a stream chunk from an endpoint."""
    ended: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    usage: bool = True
    """Output tokens are what the target counted; else an event counts as a token."""
    prompt_usage: bool = True
    """Prompt tokens are what the target counted; else they are what was asked for."""
    cached_tokens: int | None = None
    """Prompt tokens that the target says its prefix cache had."""
    finish_reason: str | None = None
    error: str | None = None
    """Kind of failure."""
    detail: str | None = None
    text: list[str] | None = None
    """What the answer says, piece by piece; None: nobody keeps it."""
    stamps: Stamps | None = None
    """The engine's own stages, where it runs in this process."""

    @property
    def first(self) -> int:
        return self.events[0] if self.events else 0

    @property
    def last(self) -> int:
        return self.events[-1] if self.events else 0

    @property
    def completed(self) -> bool:
        """Answered to its end: only such requests have latencies."""
        return self.error is None and self.finish_reason != INTERRUPTED and bool(self.events)

    @property
    def failed(self) -> bool:
        """The target or this machine failed it; an empty answer is an answer."""
        return self.error not in (None, EMPTY)

    @property
    def send_delay_ms(self) -> float:
        return (self.sent - self.scheduled) / 1e6

    @property
    def ttft_ms(self) -> float | None:
        return (self.first - self.scheduled) / 1e6 if self.completed else None

    @property
    def e2e_ms(self) -> float | None:
        return (self.last - self.scheduled) / 1e6 if self.completed else None

    @property
    def tpot_ms(self) -> float | None:
        """(E2E − TTFT) / (output tokens − 1); None below two tokens."""
        if not self.completed or self.output_tokens < 2:
            return None
        return (self.last - self.first) / 1e6 / (self.output_tokens - 1)

    @property
    def itl_ms(self) -> np.ndarray:
        """Each gap between token events."""
        return np.diff(np.frombuffer(self.events, np.int64)) / 1e6

    @property
    def queue_ms(self) -> float | None:
        """Queued → first scheduled, where the engine says so."""
        if self.stamps is None or not self.completed:
            return None
        wait = self.stamps.span_ms("queued", "first_scheduled")
        return None if wait is None else max(wait, 0.0)  # a step's plan has its start's time

    def row(self, start: int) -> dict[str, Any]:
        """One line of JSON; times in seconds from `start`. A later load can replay it."""
        return {
            "schema": SCHEMA,
            "id": self.index,
            "scheduled_s": (self.scheduled - start) / 1e9,
            "sent_s": _seconds(self.sent, start),
            "first_token_s": _seconds(self.first, start),
            "last_token_s": _seconds(self.last, start),
            "prompt_tokens": self.prompt_tokens or self.prompt_asked,
            "output_tokens": self.output_tokens,
            "output_asked": self.output_asked,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "detail": self.detail,
            "ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "e2e_ms": self.e2e_ms,
            "queue_ms": self.queue_ms,
        }


def _seconds(moment: int, start: int) -> float | None:
    return (moment - start) / 1e9 if moment else None


class RecordFile:
    """One line of JSON per request, written as it ends. Raises ConfigError when it cannot be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = TextIOWrapper(open_private(path, "wb"), "utf-8", line_buffering=True)
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._file.close()

    def write(self, record: RequestRecord, start: int) -> None:
        line = json.dumps(record.row(start), allow_nan=False, ensure_ascii=False)
        try:
            self._file.write(line + "\n")
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> ConfigError:
        return ConfigError(f"--jsonl {self._path}: cannot be written ({error.strerror})")
