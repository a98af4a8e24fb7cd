"""The two completion endpoints: read, check, tokenize, submit, answer.

An error before the first token has its own status, streaming or not: a stream's head is sent
with its first token. The client's leaving is watched from the moment its request is read.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Generic

from starlette.types import Receive, Scope, Send

from console.server.admission import Admission
from console.server.body import read_body
from console.server.errors import ApiError, bad_request
from console.server.jsonbody import parse
from console.server.messages import BARE, Messages, lost
from console.server.open_request import ENDS, OpenRequest
from console.server.schema import Asked, ChatRequest, Common, read
from console.server.shapes import Shape, usage
from engine.errors import EngineError, RequestError
from engine.request import MAX_TOKENS_LIMIT, Priority, SamplingParams
from engine.text.completion import Encoded, is_token_ids

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
            watcher = asyncio.create_task(_watch(receive, request))
            try:
                await self._serve(asked, request, arrived, send)
            finally:
                request.leave()
                watcher.cancel()
                with suppress(asyncio.CancelledError):
                    await watcher

    async def _serve(self, asked: Asked, request: OpenRequest, arrived: int, send: Send) -> None:
        encoded = await self._encode(asked)
        request.check()
        stream = bool(asked.stream)
        request.submit(
            [(one, _params(asked, self._admission.room(len(one.ids)))) for one in encoded],
            asked.choices_each,
            _priority(asked.priority),
            self._admission.settings.request_s,
            arrived,
            tokens_wanted=stream,
        )
        counted = bool(asked.stream_options and asked.stream_options.include_usage)
        pieces = self._admission.engine.loaded.tokenizer.pieces
        shape = self._shape(self._admission.model, pieces, stream and counted)
        if stream:
            await _Streamed(request, shape, asked, counted, send).run()
        else:
            await _whole(request, shape, asked, send)

    async def _encode(self, asked: Common) -> list[Encoded]:
        """ApiError for a prompt without tokens, or with too many."""
        try:
            prompts = asked.prompts()
            if isinstance(asked, ChatRequest):
                await self._check_messages(prompts[0])
            encoded = [await self._tokens(prompt) for prompt in prompts]
        except RequestError as error:
            field = "messages" if self._shape.prefix == "chatcmpl" else "prompt"
            raise bad_request(str(error), field, "invalid_value") from None
        except EngineError as error:
            raise self._admission.closed(error) from None
        for one in encoded:
            self._admission.check_prompt(one.ids)
        return encoded

    async def _check_messages(self, messages: Messages) -> None:
        """ApiError for what the model's chat template would leave out."""
        if all(name in BARE for message in messages for name in message):
            return
        render = self._admission.engine.loaded.tokenizer.render_chat
        if (param := await asyncio.to_thread(lost, messages, render)) is not None:
            raise bad_request(
                f"{param}: this model's chat template leaves it out, so the model would not "
                "know of it; put it into the content, or leave it out",
                param, "unsupported",
            )  # fmt: skip

    async def _tokens(self, prompt: Any) -> Encoded:
        if is_token_ids(prompt):  # nothing to do for the pool, and no thread to wake
            now = time.monotonic_ns()
            return Encoded(prompt, now, now)
        return await asyncio.wrap_future(self._admission.engine.encode(prompt))


async def _watch(receive: Receive, request: OpenRequest) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    request.leave()


def _params(asked: Common, room: int) -> SamplingParams:
    room = min(room, MAX_TOKENS_LIMIT)
    longest = min(asked.longest or room, room)
    stop = asked.stop if isinstance(asked.stop, list) else [asked.stop] if asked.stop else []
    seed = None if asked.seed is None else asked.seed & (2**63 - 1)
    return SamplingParams(
        max_tokens=longest,
        min_tokens=min(asked.min_tokens or 0, longest),
        temperature=1.0 if asked.temperature is None else float(asked.temperature),
        top_k=max(asked.top_k or 0, 0),  # vLLM's -1 is off as well
        top_p=1.0 if asked.top_p is None else float(asked.top_p),
        seed=seed,
        stop=tuple(stop),
        stop_token_ids=tuple(asked.stop_token_ids or ()),
        ignore_eos=bool(asked.ignore_eos),
        logprobs=asked.likeliest,
    )


def _priority(value: int | None) -> Priority:
    """vLLM's numbers, lower first and 0 usual, on this engine's three levels."""
    if not value:
        return Priority.NORMAL
    return Priority.HIGH if value < 0 else Priority.LOW


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
        self, request: OpenRequest, shape: Shape, asked: Common, counted: bool, send: Send
    ) -> None:
        self._request, self._shape, self._send = request, shape, send
        self._noted = asked.likeliest is not None
        self._counted = counted
        self._started = False

    async def run(self) -> None:
        request = self._request
        while not request.done:
            await request.wait()
            try:
                request.check()
                data = b"".join(self._pieces())
            except ApiError as error:
                await self._break_off(error)
                return
            if request.done:
                counts = usage(request.prompt_tokens, request.output_tokens)
                data += self._shape.last(counts if self._counted else None)
            if data:
                await self._write(data, more=not request.done)

    def _pieces(self) -> list[bytes]:
        pieces = []
        for index, event in self._request.take():
            finish = ENDS[event.finish_reason] if event.finish_reason else None
            if event.text or finish or event.logprobs:
                notes = event.logprobs if self._noted else None
                pieces.append(self._shape.piece(index, event.text, finish, notes))
        return pieces

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
