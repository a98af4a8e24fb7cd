"""A proxy on this machine that tampers with what passes, on a thread and a loop of its own.

One connection a request, in both directions: what the client sees of the server's end is what
the tampering leaves of it. Its own Snapshot page is hidden, so that the server behind it looks
like any other engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from playbooks.faults.tampering import Tampering

HOST = "127.0.0.1"
HIDDEN = ("/snapshot",)
METRICS = "/metrics"
PIECE = 1 << 16
EVENT = b"data: "
START_S = 10.0
DROPPED = ("connection", "accept-encoding", "content-length", "keep-alive")
"""Headers that the proxy says itself."""


@dataclass(frozen=True)
class _Asked:
    method: str
    path: str
    headers: tuple[str, ...]
    body: bytes

    def to_bytes(self, body: bytes) -> bytes:
        """For the server. A metrics page is asked for in HTTP/1.0: it comes unchunked."""
        version = "1.0" if self.path == METRICS else "1.1"
        head = [f"{self.method} {self.path} HTTP/{version}", *self.headers, "Connection: close",
                "Accept-Encoding: identity", f"Content-Length: {len(body)}"]  # fmt: skip
        return "\r\n".join([*head, "", ""]).encode("latin-1") + body


class FaultyProxy:
    """Between `start` and `stop` it serves at `url` what serves at `upstream`, tampered with."""

    def __init__(self, upstream: str, tampering: Tampering | None = None) -> None:
        address = urlsplit(upstream)
        self._host, self._port = address.hostname or HOST, address.port or 80
        self._tampering = tampering or Tampering()
        self._asked = 0
        self._url = ""
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)

    @property
    def url(self) -> str:
        return self._url

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._up.wait(START_S):
            raise RuntimeError("the proxy did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connection, HOST, 0)
        self._url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        self._up.set()
        await self._end.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connection(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        parts: list[asyncio.Future[Any]] = []
        try:
            asked = await _read(client)
            parts = [asyncio.ensure_future(self._answer(asked, back)),
                     asyncio.ensure_future(client.read())]  # fmt: skip
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one of the two has gone, or the proxy ends
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            self._open.discard(task)
            with contextlib.suppress(OSError):
                back.close()

    async def _answer(self, asked: _Asked, back: asyncio.StreamWriter) -> None:
        if asked.path in HIDDEN:
            await _say(back, "404 Not Found", b"")
        elif asked.method == "POST":
            await self._completion(asked, back)
        else:
            await self._relay(asked, asked.body, back)

    async def _completion(self, asked: _Asked, back: asyncio.StreamWriter) -> None:
        number, self._asked = self._asked, self._asked + 1
        if self._tampering.refuses(number):
            await _say(back, "503 Service Unavailable", b'{"error":{"message":"overloaded"}}')
            return
        await asyncio.sleep(self._tampering.wait_s(number))
        await self._relay(asked, self._tampering.body(asked.body), back, number)

    async def _relay(
        self, asked: _Asked, body: bytes, back: asyncio.StreamWriter, number: int | None = None
    ) -> None:
        server, out = await asyncio.open_connection(self._host, self._port)
        try:
            out.write(asked.to_bytes(body))
            if asked.path == METRICS:
                await self._metrics(await server.read(), back)
                return
            most = None if number is None else self._tampering.cut_after(number)
            if number is not None and self._tampering.in_one_piece:
                back.write(await server.read())
                await back.drain()
                return
            passed = 0
            while piece := await server.read(PIECE):
                first, *events = piece.split(EVENT)
                back.write(first)
                for event in events:
                    if passed == most:
                        return
                    await asyncio.sleep(self._tampering.event_wait_s())
                    back.write(EVENT + event)
                    await back.drain()
                    passed += 1
                await back.drain()
        finally:
            out.close()

    async def _metrics(self, answer: bytes, back: asyncio.StreamWriter) -> None:
        head, _, page = answer.partition(b"\r\n\r\n")
        status = head.split(b"\r\n")[0].decode("latin-1").partition(" ")[2]
        await _say(back, status, self._tampering.metrics(page.decode(), self._asked).encode())


async def _read(client: asyncio.StreamReader) -> _Asked:
    head = (await client.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    fields = {line.partition(":")[0].lower(): line for line in head[1:] if line}
    length = int(fields.get("content-length", ":0").partition(":")[2])
    kept = tuple(line for name, line in fields.items() if name not in DROPPED)
    return _Asked(method, path, kept, await client.readexactly(length))


async def _say(back: asyncio.StreamWriter, status: str, body: bytes) -> None:
    kind = "application/json" if body.startswith(b"{") else "text/plain; version=0.0.4"
    head = (f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n")  # fmt: skip
    back.write(head.encode() + body)
    await back.drain()
