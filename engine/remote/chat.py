"""One question to an external engine over the OpenAI API, streamed into a Stream."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from engine.errors import EngineError
from engine.remote.client import Client
from engine.remote.errors import complaint, one_line
from engine.request import FinishReason, SamplingParams
from engine.stream import Stream

SILENCE_S = 120.0
"""Without a byte of the answer: a queue may be long."""
MAX_LINE = 1 << 20
REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.CANCELLED,
    "kv_capacity": FinishReason.KV_CAPACITY,
}
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
            self.stream.close(FinishReason.ERROR, error=str(error))
        except (httpx.HTTPError, httpx.StreamError) as error:
            self.stream.close(FinishReason.ERROR, error=self._client.reason(error))
        except Exception as error:  # whatever a server sends, the asker must get an end
            self.stream.close(FinishReason.ERROR, error=f"not understood: {type(error).__name__}")

    def _read(self, answer: httpx.Response) -> FinishReason:
        if answer.status_code != 200:
            why = complaint(answer) or "no reason given"
            raise EngineError(f"answered {answer.status_code}: {why}")
        reason: FinishReason | None = None
        for event in _events(answer):
            if self._cancelled.is_set():
                return FinishReason.CANCELLED
            if self._end is not None and time.monotonic() > self._end:
                return FinishReason.TIMEOUT
            if event.get("error"):
                raise EngineError(one_line(str(event["error"])))
            for choice in event.get("choices") or ():
                text = _text(choice)
                if text:
                    self.stream.put(text, (0,))  # ids are not told; an event is about one token
                if isinstance(choice.get("finish_reason"), str):
                    reason = REASONS.get(choice["finish_reason"], FinishReason.STOP)
        if reason is None:
            raise EngineError("the answer broke off")
        return reason


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
    return "/v1/chat/completions" if chat else "/v1/completions", body


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of events."""
    for line in _lines(answer):
        name, _, data = line.partition(":")
        data = data.strip()
        if name != "data" or data == "[DONE]":
            continue
        event = json.loads(data)
        if isinstance(event, dict):
            yield event


def _lines(answer: httpx.Response) -> Iterator[str]:
    rest = b""
    for chunk in answer.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE:
            raise EngineError("the answer has a line without end")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in lines)
    if rest:
        yield rest.decode("utf-8", "replace")


def _text(choice: Any) -> str:
    part = choice.get("delta", choice) if isinstance(choice, dict) else {}
    found = part.get("content") or part.get("text") if isinstance(part, dict) else None
    return found if isinstance(found, str) else ""
