"""The two completion endpoints: read, check, tokenize, submit, answer.

An error before the first token has its own status, streaming or not: a stream's head is sent
with its first token. The client's leaving is watched from the moment its request is read.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Generic

from starlette.types import Receive, Scope, Send

from console.server.admission import Admission
from console.server.body import read_body
from console.server.errors import ApiError, bad_request
from console.server.jsonbody import parse
from console.server.messages import BARE, faithful
from console.server.open_request import ENDS, OpenRequest
from console.server.params import priority, runs_of, sampling
from console.server.protocol import LEFT
from console.server.schema import Asked, Common, CompletionRequest, read
from console.server.shapes import Shape, usage
from engine.errors import EngineError, RequestError
from engine.request import SamplingParams
from engine.text.completion import Chat, Encoded, is_token_ids
from engine.text.tokenizer import Tokenizer

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Completions(Generic[Asked]):
    """One endpoint, as an ASGI application."""

    def __init__(self, admission: Admission, kind: type[Asked], shape: type[Shape]) -> None:
        self._admission, self._kind, self._shape = admission, kind, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        arrived = time.monotonic_ns()
        limits = self._admission.settings
        body = await read_body(scope, receive, limits.max_body, limits.body_s)
        asked = read(self._kind, parse(body))
        del body
        self._admission.check_model(asked.model)
        choices = asked.choices_each * len(asked.prompts())
        with self._admission.admit(choices) as request:
            scope[LEFT] = request.leave
            try:
                await self._serve(asked, request, arrived, send)
            finally:
                del scope[LEFT]
                request.leave()

    async def _serve(self, asked: Asked, request: OpenRequest, arrived: int, send: Send) -> None:
        encoded = await self._encode(asked)
        params = await self._params(asked, encoded)
        request.check()
        stream = bool(asked.stream)
        request.submit(
            list(zip(encoded, params, strict=True)),
            asked.choices_each,
            asked.user or "",
            priority(asked.priority),
            self._admission.settings.request_s,
            arrived,
            tokens_wanted=stream,
        )
        options = asked.stream_options
        counted = bool(options and options.include_usage)
        pieces = self._tokenizer.pieces
        shape = self._shape(self._admission.model, pieces, stream and counted)
        if isinstance(asked, CompletionRequest) and asked.echo:
            shape.before = [
                t for t in self._said(asked, encoded) for _ in range(asked.choices_each)
            ]
        if stream:
            always = counted and bool(options and options.continuous_usage_stats)
            await _Streamed(request, shape, asked, counted, always, send).run()
        else:
            await _whole(request, shape, asked, send)

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._admission.engine.loaded.tokenizer

    async def _encode(self, asked: Common) -> list[Encoded]:
        """ApiError for a prompt without tokens, or with too many."""
        try:
            encoded = [await self._tokens(prompt, asked) for prompt in asked.prompts()]
        except RequestError as error:
            field = "messages" if self._shape.prefix == "chatcmpl" else "prompt"
            raise bad_request(str(error), field, "invalid_value") from None
        except EngineError as error:
            raise self._admission.closed(error) from None
        encoded = [self._truncated(one, asked) for one in encoded]
        for one in encoded:
            self._admission.check_prompt(one.ids)
        return encoded

    async def _tokens(self, prompt: Any, asked: Common) -> Encoded:
        if is_token_ids(prompt):  # nothing to do for the pool, and no thread to wake
            now = time.monotonic_ns()
            return Encoded(prompt, now, now)
        template = self._tokenizer.template
        if isinstance(prompt, Chat) and template is not None and not _is_plain(prompt):
            prompt = await asyncio.to_thread(faithful, prompt, template)
        bare = isinstance(asked, CompletionRequest) and asked.add_special_tokens is False
        return await asyncio.wrap_future(self._admission.engine.encode(prompt, not bare))

    def _truncated(self, one: Encoded, asked: Common) -> Encoded:
        """As much of the prompt as was asked for, its end unless the beginning is wanted."""
        most = asked.truncate_prompt_tokens
        if most == -1:
            most = max(self._admission.room(asked.longest or 1), 1)
        if most is None or len(one.ids) <= most:
            return one
        ids = one.ids[:most] if asked.truncation_side == "right" else one.ids[-most:]
        return replace(one, ids=ids)

    def _said(self, asked: CompletionRequest, encoded: list[Encoded]) -> list[str]:
        """The prompts' texts."""
        whole = asked.truncate_prompt_tokens is None
        pairs = zip(asked.prompts(), encoded, strict=True)
        return [
            prompt if isinstance(prompt, str) and whole else self._tokenizer.decode(one.ids)
            for prompt, one in pairs
        ]

    async def _params(self, asked: Common, encoded: list[Encoded]) -> list[SamplingParams]:
        words = asked.bad_words or []
        runs = await asyncio.to_thread(runs_of, words, self._tokenizer) if words else []
        made = [sampling(asked, self._admission.room(len(one.ids)), runs) for one in encoded]
        vocab = self._admission.engine.loaded.spec.vocab
        if made and (field := made[0].beyond(vocab)) is not None:
            raise bad_request(f"{field}: a token is not one of the model's {vocab}", field)
        return made


def _is_plain(chat: Chat) -> bool:
    """Turns with a text each, and nothing that a template could leave out."""
    return not chat.names and all(
        m["role"] in ("user", "assistant") and all(name in BARE for name in m)
        for m in chat.messages
    )


async def _whole(request: OpenRequest, shape: Shape, asked: Common, send: Send) -> None:
    await request.wait_for_all()
    request.check()
    noted = asked.likeliest is not None
    choices = [
        shape.choice(i, event.text, ENDS[event.finish_reason], event.logprobs if noted else None)
        for i, event in request.take()
        if event.finish_reason is not None
    ]
    body = shape.answer(choices, usage(request.prompt_tokens, request.output_tokens))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", shape.id.encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Streamed:
    """Writes what came since the last write, all choices together, until the last has ended."""

    def __init__(
        self,
        request: OpenRequest,
        shape: Shape,
        asked: Common,
        counted: bool,
        always: bool,
        send: Send,
    ) -> None:
        """`counted`: the last event has the counts; `always`: each has those so far."""
        self._request, self._shape, self._send = request, shape, send
        self._always = always
        self._noted = asked.likeliest is not None
        self._counted = counted
        self._started = False

    async def run(self) -> None:
        request, done = self._request, False
        while not done:
            await request.wait()
            try:
                request.check()
                data = b"".join(self._pieces())
            except ApiError as error:
                await self._break_off(error)
                return
            if done := request.done:
                data += self._shape.last(self._counts() if self._counted else None)
            if data:
                await self._write(data, more=not done)

    def _pieces(self) -> list[bytes]:
        pieces = []
        for index, event in self._request.take():
            finish = ENDS[event.finish_reason] if event.finish_reason else None
            if event.text or finish or event.logprobs:
                notes = event.logprobs if self._noted else None
                if self._always:
                    self._shape.count(self._counts())
                pieces.append(self._shape.piece(index, event.text, finish, notes))
        return pieces

    def _counts(self) -> dict[str, int]:
        return usage(self._request.prompt_tokens, self._request.output_tokens)

    async def _break_off(self, error: ApiError) -> None:
        """In a stream that has begun, an error is an event; before, it is the answer."""
        if not self._started:
            raise error
        await self._write(b"data: " + error.encode() + b"\n\n", more=False)

    async def _write(self, data: bytes, more: bool) -> None:
        if not self._started:
            self._started = True
            head = [*STREAM_HEADERS, (b"x-request-id", self._shape.id.encode())]
            await self._send({"type": "http.response.start", "status": 200, "headers": head})
            data = self._shape.opening(len(self._request.streams)) + data
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
