"""One question to an external engine over the OpenAI API, streamed into a Stream."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from engine.errors import EngineError
from engine.remote.address import CHAT, COMPLETIONS
from engine.remote.answer import (
    BROKE_OFF,
    DONE,
    ENDS,
    BadStream,
    EventReader,
    end_of,
    error_of,
    event_of,
    text_of,
)
from engine.remote.client import Client
from engine.remote.errors import complaint, one_line
from engine.request import FinishReason, SamplingParams
from engine.stream import Stream

SILENCE_S = 120.0
"""Without a byte of the answer: a queue may be long."""
_numbers = itertools.count(1)


class Chat:
    """The worker is the only writer of its stream; `cancel` takes effect at the next token, or
    at once while nothing comes."""

    def __init__(
        self,
        client: Client,
        model: str | None,
        prompt: str | list[dict[str, str]] | list[int],
        params: SamplingParams,
        timeout_s: float | None,
    ) -> None:
        self.stream = Stream(f"remote-{next(_numbers)}")
        self._client = client
        self._path, self._body = _request(model, prompt, params)
        self._end = time.monotonic() + timeout_s if timeout_s else None
        self._cancelled = threading.Event()

    def start(self, ended: Callable[[], object]) -> None:
        def work() -> None:
            try:
                self._work()
            finally:
                ended()

        threading.Thread(target=work, name=self.stream.request_id, daemon=True).start()

    def cancel(self) -> None:
        self._cancelled.set()
        self.stream.close(FinishReason.CANCELLED)

    def _work(self) -> None:
        try:
            with self._client.stream(self._path, self._body, SILENCE_S) as answer:
                reason = self._read(answer)
            self.stream.close(reason)
        except EngineError as error:
            self.stream.close(FinishReason.ERROR, error=self._client.hide(str(error)))
        except (httpx.HTTPError, httpx.StreamError) as error:
            self.stream.close(FinishReason.ERROR, error=self._client.reason(error))
        except Exception as error:  # whatever a server sends, the asker must get an end
            self.stream.close(FinishReason.ERROR, error=f"not understood: {type(error).__name__}")

    def _read(self, answer: httpx.Response) -> FinishReason:
        if answer.status_code != 200:
            why = complaint(answer) or "no reason given"
            raise EngineError(f"answered {answer.status_code}: {why}")
        reason, reader = None, EventReader()
        try:
            for data in _data(answer, reader):
                if self._cancelled.is_set():
                    return FinishReason.CANCELLED
                if self._end is not None and time.monotonic() > self._end:
                    return FinishReason.TIMEOUT
                if data.strip() == DONE:
                    break
                reason = self._take(event_of(data), reason)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise EngineError(f"{BROKE_OFF}: {self._client.reason(error)}") from error
        except BadStream as error:
            raise EngineError(f"not understood: {error}") from error
        if reason is None:
            raise EngineError(BROKE_OFF)
        if reason is FinishReason.ERROR:
            raise EngineError("the server ended it with an error")
        return reason

    def _take(self, event: dict[str, Any], reason: FinishReason | None) -> FinishReason | None:
        """Pass the event's text on; the answer's end up to here, which more text undoes."""
        if error := error_of(event):
            raise EngineError(one_line(error))
        for choice in event.get("choices") or ():
            text, end = text_of(choice), end_of(choice)
            if text:
                self.stream.put(text, (0,))  # ids are not told; an event is about one token
            if text or end:
                reason = ENDS[end.lower()] if end else None
        return reason


def _data(answer: httpx.Response, reader: EventReader) -> Iterator[str]:
    for chunk in answer.iter_bytes():
        yield from reader.feed(chunk)
    yield from reader.end()


def _request(
    model: str | None, prompt: str | list[dict[str, str]] | list[int], params: SamplingParams
) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "stream": True,
    }
    if model:
        body["model"] = model
    if params.seed is not None:
        body["seed"] = params.seed
    if params.stop:
        body["stop"] = list(params.stop)
    if params.ignore_eos:
        body["ignore_eos"] = True
    chat = isinstance(prompt, list) and prompt and isinstance(prompt[0], dict)
    body["messages" if chat else "prompt"] = prompt
    return CHAT if chat else COMPLETIONS, body
