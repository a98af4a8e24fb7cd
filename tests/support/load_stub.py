"""What loads are tested against: virtual time, a server in memory, and one behind a socket.

`run_virtual(coroutine)` runs a loop whose clock jumps to the next timer, so that a minute of
traffic takes a moment and every latency comes out exact.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import httpx

from playbooks.load.client import LoadResult, LoadRun
from playbooks.load.endpoint import Endpoint, EndpointSpec
from playbooks.load.prompts import PromptMaker, TextPrompts
from playbooks.load.record import RequestRecord, now_ns
from playbooks.load.targets import Outgoing
from playbooks.load.workload import make_spec

T = TypeVar("T")


# --- virtual time ------------------------------------------------------------------------


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: it moves the clock on instead."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is left that could ever happen")
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


# --- servers in memory -------------------------------------------------------------------


@dataclass
class TimedTarget:
    """Answers after exactly `ttft` s and then a token every `itl` s, `capacity` at a time."""

    ttft: float = 0.2
    itl: float = 0.05
    capacity: int = 10_000
    limit: int | None = None
    seen: list[Outgoing] = field(default_factory=list)
    act: Callable[[int], None] = lambda index: None
    """Called with every request's index; what it raises, the target raises."""

    def describe(self) -> dict[str, Any]:
        return {"kind": "timed"}

    def prompts(self, seed: int, shared: int) -> PromptMaker:
        return TextPrompts(seed, shared)

    async def __aenter__(self) -> Self:
        self._seats = asyncio.Semaphore(self.capacity)
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def prepare(self, request: Outgoing) -> Outgoing:
        return request

    async def send(self, request: Outgoing, record: RequestRecord) -> None:
        self.seen.append(request)
        self.act(record.index)
        async with self._seats:
            for token in range(request.output):
                await asyncio.sleep(self.itl if token else self.ttft)
                record.events.append(now_ns())
        record.prompt_tokens, record.output_tokens = record.prompt_asked, request.output
        record.finish_reason = "length"


class ScriptedTransport(httpx.AsyncBaseTransport):
    """Plays `script(body)`, pieces of a response's bytes and pauses in seconds, for httpx."""

    def __init__(
        self,
        script: Callable[[dict[str, Any]], list[bytes | float]],
        status: int = 200,
        kind: str = "text/event-stream; charset=utf-8",
    ) -> None:
        self._script, self._status, self._kind = script, status, kind
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        pieces = self._script(json.loads(request.content or b"{}"))
        headers = {"content-type": self._kind}
        return httpx.Response(self._status, headers=headers, stream=_Pieces(pieces))


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, pieces: list[bytes | float]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
            else:
                await asyncio.sleep(piece)


def event(data: dict[str, Any] | str) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def token(text: str = " x", finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})


def usage(prompt: int, output: int) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": output}
    return event({"choices": [], "usage": counts})


DONE = event("[DONE]")
URL = "http://stub"


def stream_of(
    body: dict[str, Any], ttft: float = 0.2, itl: float = 0.05, text: str = " x"
) -> list[bytes | float]:
    """A whole answer with as many tokens as were asked for, then usage and [DONE]."""
    count = body["max_tokens"]
    pieces: list[bytes | float] = []
    for i in range(count):
        pieces += [itl if i else ttft, token(text, "length" if i == count - 1 else None)]
    return [*pieces, usage(20, count) + DONE]


def load_on(
    transport: httpx.AsyncBaseTransport,
    arrivals: str = "constant:10",
    lengths: str = "fixed:20,11",
    api: str = "completions",
    key: str | None = None,
    **rest: Any,
) -> LoadResult:
    """A run in virtual time."""
    endpoint = Endpoint(EndpointSpec(URL, api=api, model="m", key=key), transport)
    rest = {"requests": 300} | rest
    return run_virtual(LoadRun(endpoint, make_spec(arrivals, lengths, **rest)).run())


# --- a server behind a socket --------------------------------------------------------------

Behaviour = Callable[["Exchange"], Coroutine[Any, Any, None]]


@dataclass
class Exchange:
    """One request of a client, and the means to answer it."""

    body: dict[str, Any]
    writer: asyncio.StreamWriter

    async def start(self, status: str = "200 OK", kind: str = "text/event-stream") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
        await self._write(head.encode())

    async def chunk(self, data: bytes) -> None:
        await self._write(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class StubServer:
    """`behave` answers every completion; /v1/models names one model. Use with `async with`."""

    def __init__(self, behave: Behaviour) -> None:
        self._behave = behave
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self._open: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.headers.append(head)
        exchange = Exchange({}, writer)
        if head.startswith("GET"):
            await exchange.start(kind="application/json")
            await exchange.chunk(json.dumps({"data": [{"id": "stub"}]}).encode())
            await exchange.end()
            return True
        length = next(
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        exchange.body = json.loads(await reader.readexactly(length))
        self.bodies.append(exchange.body)
        await self._behave(exchange)
        return not writer.is_closing()


def timed(ttft: float, itl: float, capacity: int = 10_000) -> Behaviour:
    """A server that answers as TimedTarget does, by the clock: a late wake-up is made up for."""
    seats = asyncio.Semaphore(capacity)

    async def behave(exchange: Exchange) -> None:
        async with seats:
            begun = asyncio.get_running_loop().time()
            await exchange.start()
            count = exchange.body["max_tokens"]
            for i in range(count):
                due = begun + ttft + i * itl
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                await exchange.chunk(token(finish="length" if i == count - 1 else None))
        words = len(exchange.body["prompt"].split())
        await exchange.chunk(usage(words, count) + DONE)
        await exchange.end()

    return behave
