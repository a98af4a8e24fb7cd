"""How answers look: OpenAI's objects, whole and in pieces.

A streamed piece is made once a token, so its unchanging parts are encoded once a request and
only the text is encoded anew.
"""

from __future__ import annotations

import itertools
import json
import math
import time
import uuid
from collections.abc import Sequence
from json.encoder import encode_basestring as quoted  # C: 20 times cheaper than json.dumps
from typing import Any

from engine.request import TokenLogprobs

LOWEST = -9999.0
"""What JSON can say of a log probability of minus infinity."""
DONE = b"data: [DONE]\n\n"


dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def event(text: str) -> bytes:
    return f"data: {text}\n\n".encode()


def usage(prompt: int, output: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }


class Shape:
    """One request's answer. `pieces` are the tokenizer's bytes of each id."""

    prefix, whole, chunk = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str, pieces: Sequence[bytes], with_usage: bool) -> None:
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._head = {"id": self.id, "created": int(time.time()), "model": model}
        self._pieces = pieces
        self._open = dumps(self._head | {"object": self.chunk})[:-1] + ',"choices":['
        self._close = '],"usage":null}' if with_usage else "]}"
        self.before: Sequence[str] = ()
        """Of each choice the text that stands before its answer; none where nothing does."""

    def count(self, counts: dict[str, int]) -> None:
        """What the next pieces say was counted."""
        self._close = f'],"usage":{dumps(counts)}}}'

    # whole answers

    def answer(self, choices: list[dict[str, Any]], counts: dict[str, int]) -> bytes:
        data = self._head | {"object": self.whole, "choices": choices, "usage": counts}
        return dumps(data).encode()

    def choice(
        self, index: int, text: str, finish: str, logprobs: Sequence[TokenLogprobs] | None
    ) -> dict[str, Any]:
        raise NotImplementedError

    # streams

    def opening(self, choices: int) -> bytes:
        """What goes before the first piece."""
        return b""

    def piece(
        self, index: int, text: str, finish: str | None, logprobs: Sequence[TokenLogprobs] | None
    ) -> bytes:
        raise NotImplementedError

    def last(self, counts: dict[str, int] | None) -> bytes:
        """The end of a stream, with the counts if they were asked for."""
        if counts is None:
            return DONE
        return event(f'{self._open}],"usage":{dumps(counts)}}}') + DONE

    def _event(self, choice: str) -> bytes:
        return event(self._open + choice + self._close)

    def _token(self, token: int) -> bytes:
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""


class CompletionShape(Shape):
    def __init__(self, model: str, pieces: Sequence[bytes], with_usage: bool) -> None:
        super().__init__(model, pieces, with_usage)
        self._offsets: dict[int, int] = {}
        """Characters of each choice's tokens so far."""

    def choice(
        self, index: int, text: str, finish: str, logprobs: Sequence[TokenLogprobs] | None
    ) -> dict[str, Any]:
        return {
            "index": index,
            "text": (self.before[index] if self.before else "") + text,
            "logprobs": self._logprobs(index, logprobs),
            "finish_reason": finish,
        }

    def opening(self, choices: int) -> bytes:
        return b"".join(self.piece(i, text, None, None) for i, text in enumerate(self.before))

    def piece(
        self, index: int, text: str, finish: str | None, logprobs: Sequence[TokenLogprobs] | None
    ) -> bytes:
        notes = dumps(self._logprobs(index, logprobs)) if logprobs is not None else "null"
        why = f'"{finish}"' if finish else "null"
        return self._event(
            f'{{"index":{index},"text":{quoted(text)},"logprobs":{notes},"finish_reason":{why}}}'
        )

    def _logprobs(
        self, index: int, logprobs: Sequence[TokenLogprobs] | None
    ) -> dict[str, Any] | None:
        if logprobs is None:
            return None
        tokens = [self._spell(item.token) for item in logprobs]
        start = self._offsets.get(index, 0)
        offsets = list(itertools.accumulate((len(t) for t in tokens), initial=start))
        self._offsets[index] = offsets.pop()
        return {
            "tokens": tokens,
            "token_logprobs": [_finite(item.logprob) for item in logprobs],
            "top_logprobs": [
                {self._spell(token): _finite(value) for token, value in item.top}
                for item in logprobs
            ],
            "text_offset": offsets,
        }

    def _spell(self, token: int) -> str:
        """As OpenAI spells a token that is no whole character: its bytes."""
        data = self._token(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class ChatShape(Shape):
    prefix, whole, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def choice(
        self, index: int, text: str, finish: str, logprobs: Sequence[TokenLogprobs] | None
    ) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(logprobs),
            "finish_reason": finish,
        }

    def opening(self, choices: int) -> bytes:
        role = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
        return b"".join(self._event(f'{{"index":{i},{role}}}') for i in range(choices))

    def piece(
        self, index: int, text: str, finish: str | None, logprobs: Sequence[TokenLogprobs] | None
    ) -> bytes:
        notes = dumps(self._logprobs(logprobs)) if logprobs is not None else "null"
        delta = f'"delta":{{"content":{quoted(text)}}}' if text or logprobs else '"delta":{}'
        why = f'"{finish}"' if finish else "null"
        return self._event(f'{{"index":{index},{delta},"logprobs":{notes},"finish_reason":{why}}}')

    def _logprobs(self, logprobs: Sequence[TokenLogprobs] | None) -> dict[str, Any] | None:
        if logprobs is None:
            return None
        content = [
            self._note(item.token, item.logprob)
            | {"top_logprobs": [self._note(token, value) for token, value in item.top]}
            for item in logprobs
        ]
        return {"content": content, "refusal": None}

    def _note(self, token: int, value: float) -> dict[str, Any]:
        data = self._token(token)
        return {
            "token": data.decode("utf-8", "replace"),
            "logprob": _finite(value),
            "bytes": list(data),
        }


def _finite(value: float) -> float:
    return value if math.isfinite(value) else LOWEST
