"""The operator's talk with the model: what was said, and the answer that is arriving."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from console.locale.lang import said
from console.renderables import format as fmt
from engine.errors import EngineError
from engine.request import FinishReason, SamplingParams
from engine.stream import Stream

PARAMS = SamplingParams(max_tokens=512, temperature=0.6, top_p=0.95)
GOOD_ENDS = (FinishReason.STOP, FinishReason.LENGTH)

Ask = Callable[[list[dict[str, str]], SamplingParams], Stream]


@dataclass
class Turn:
    """One message. An answer gains text while it streams."""

    role: str
    """user | assistant, as in the chat sent to the engine."""
    text: str = ""
    note: str = ""
    """How an answer ended, what it cost, or why there is none."""
    failed: bool = False
    """Shown, but not sent to the model again."""


@dataclass
class Conversation:
    """Single-threaded. `ask` submits through the given callable; `take` drains the stream."""

    turns: list[Turn] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    _stream: Stream | None = None
    _asked: float = 0.0
    _first: float = 0.0
    _tokens: int = 0

    @property
    def request_id(self) -> str | None:
        """Of the answer that is running."""
        return self._stream.request_id if self._stream is not None else None

    def ask(self, text: str, submit: Ask) -> None:
        """Add the operator's message and start the answer; a refusal becomes its note."""
        question, answer = Turn("user", text), Turn("assistant")
        chat = [*self._chat(), {"role": "user", "content": text}]
        self.turns += [question, answer]
        self._asked, self._first, self._tokens = self.clock(), 0.0, 0
        try:
            self._stream = submit(chat, PARAMS)
        except EngineError as error:
            question.failed = answer.failed = True
            answer.note = f"refused: {error}"

    def take(self) -> bool:
        """Move what has arrived into the last turn; whether anything had."""
        event = self._stream.poll() if self._stream is not None else None
        if event is None:
            return False
        answer = self.turns[-1]
        answer.text += event.text
        self._tokens += len(event.token_ids)
        if event.token_ids and not self._first:
            self._first = self.clock()
        if event.finish_reason is not None:
            self._finish(answer, event.finish_reason, event.error)
        return True

    def _finish(self, answer: Turn, reason: FinishReason, error: str | None) -> None:
        self._stream = None
        ended = str(reason)
        if error:
            ended = said("{reason}: {error}", reason=ended, error=error)
        notes = [ended, f"{self._tokens} tok"]
        if self._first:
            notes.append(f"first after {fmt.duration(self._first - self._asked)}")
            took = self.clock() - self._first
            if self._tokens > 1 and took > 0:
                notes.append(fmt.rate((self._tokens - 1) / took, "tok"))
        answer.note = " · ".join(notes)
        if reason not in GOOD_ENDS and not answer.text:
            self.turns[-2].failed = answer.failed = True

    def _chat(self) -> list[dict[str, str]]:
        return [{"role": t.role, "content": t.text} for t in self.turns if not t.failed]
