"""HTTP on the socket: uvicorn's h11 protocol with the limits that it leaves out.

A head must be complete in time, a client must read what it is sent, there are only so many
connections, and what is no HTTP is answered in OpenAI's shape.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from console.server.errors import ApiError, unavailable
from console.server.openfiles import ACCEPTED_AT_ONCE
from console.server.settings import ServerSettings

LINGER_S = 0.1
LINGERING_MOST = 2 * ACCEPTED_AT_ONCE
IDLE_S = 0.2
"""A connection without a request for so long gives its place to a new one when all are taken."""
LEFT = "evewatch.left"
"""In the scope of a request: what is called when its client leaves before it is answered."""


class Corked:
    """A transport that sends what is written in one turn of the loop in one piece: head and first
    body, last body and end. Each piece is a system call here, and a waking at the client."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._pieces:
            self._loop.call_soon(self._send)
        self._pieces.append(data)

    def _send(self) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._transport.write(data)

    def close(self) -> None:
        self._send()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(H11Protocol):
    limits = ServerSettings()
    lingering: ClassVar[set[LimitedProtocol]] = set()
    """Refused, and read for a moment longer. Both are set by `protocol_with`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.access_log = False  # whatever handlers the program's logging has

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        corked: Any = Corked(transport, self.loop)
        super().connection_made(corked)
        connection = transport.get_extra_info("socket")
        if connection is not None:  # asyncio does it only for sockets that it has bound itself
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._idle_since = self.loop.time()
        self._head: asyncio.TimerHandle | None = None
        self._write: asyncio.TimerHandle | None = None
        if len(self.connections) > self.limits.max_connections and not self._take_idle_place():
            self._refuse(unavailable("too many connections; try later"))
            return
        self._expect_head()

    def _take_idle_place(self) -> bool:
        """Close the connection that has been without a request for longest, if there is one."""
        idle = [c for c in self.connections if isinstance(c, LimitedProtocol) and c.idle_s > IDLE_S]
        if not idle:
            return False
        longest = max(idle, key=lambda connection: connection.idle_s)
        if longest.cycle is None:
            longest._refuse(unavailable("too many connections; try later"))
        else:  # it has had its answer
            longest.transport.close()
        return True

    @property
    def idle_s(self) -> float:
        """Seconds without a request; 0 while there is one, and while it is being closed."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        closing = self in self.lingering or self.transport.is_closing()
        return 0.0 if under_way or closing else self.loop.time() - self._idle_since

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget("_head")
        self._forget("_write")
        self.lingering.discard(self)
        super().connection_lost(exc)
        left: Any = None if self.scope is None else self.scope.get(LEFT)
        if left is not None:
            left()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self in self.lingering:
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect_head()  # not restarted by each further byte
        else:
            self._forget("_head")

    def on_response_complete(self) -> None:
        self._forget("_head")
        self._idle_since = self.loop.time()
        super().on_response_complete()

    # --- a head that never comes --------------------------------------------------------

    def _expect_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(self.limits.head_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            seconds = self.limits.head_s
            self._refuse(ApiError(408, f"no complete request within {seconds:g} s", code="timeout"))

    # --- a client that does not read ----------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._forget("_write")
        self._write = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget("_write")

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()  # closes once everything is written: if it ever is
        self._forget("_write")
        self._write = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def _forget(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name, None)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)

    # --- errors below HTTP --------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Called while h11's complaint is handled."""
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        limit = self.limits.max_header
        text = f"the head is larger than {limit} bytes" if status == 431 else "this is not HTTP"
        self._refuse(ApiError(status, text, code="bad_http"))

    def _refuse(self, error: ApiError) -> None:
        """Answer, if nothing has been answered yet, and close."""
        body = error.encode()
        headers: list[tuple[Any, Any]] = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
            *error.headers.items(),
        ]
        reason = STATUS_PHRASES.get(error.status, b"")
        response = h11.Response(status_code=error.status, headers=headers, reason=reason)
        try:
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:  # in the middle of another answer
            self.transport.abort()
            return
        if len(self.lingering) < LINGERING_MOST:
            # A socket that is closed with something unread resets, and takes the answer with it.
            self.lingering.add(self)
            self.loop.call_later(LINGER_S, self.transport.close)
        else:
            self.transport.close()


def protocol_with(limits: ServerSettings) -> type[LimitedProtocol]:
    return type("Protocol", (LimitedProtocol,), {"limits": limits, "lingering": set()})
