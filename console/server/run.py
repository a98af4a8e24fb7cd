"""Running the server: in this thread until a signal, or in a thread beside something else.

The end is in order: stop accepting, finish what runs for so long as the settings say, then give
the rest up with an error that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator

import uvicorn

from console.server.app import Api
from console.server.openfiles import ACCEPTED_AT_ONCE, within_open_files
from console.server.protocol import protocol_with
from console.server.settings import ServerSettings
from console.server.warn import OncePerMinute
from engine.core import Engine
from engine.errors import ConfigError

KEEP_ALIVE_S = 30
"""An idle connection is kept for so long: longer than clients keep theirs (openai: 5 s), so that
a server never closes under a request."""
SEND_BUFFER = 128 << 10
"""Bytes that the system keeps for a client that does not read; it would take megabytes."""
BACKLOG = 1024
"""Connections that the system keeps until they are taken."""
GRACE_S = 5
"""For what was given up to tell its clients."""


def bind(settings: ServerSettings) -> socket.socket:
    """The address, taken but not listened on yet: who connects before there is a server is
    refused, and does not wait. ConfigError when it cannot be had."""
    host, port = settings.host.strip("[]"), settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = "; choose another --port, 0 for any free one" if port else ""
        raise ConfigError(f"{host}:{port}: cannot listen there ({error.strerror}){hint}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # its connections too
    return listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self._settings = settings = within_open_files(settings)
        self._api = Api(engine, settings)
        self.signal: int | None = None
        """The first that came."""
        for name in ("uvicorn.error", "asyncio"):
            _calm(name)
        super().__init__(
            uvicorn.Config(
                self._api,
                http=protocol_with(settings),
                ws="none",
                lifespan="off",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(settings.drain_s) + GRACE_S,
                backlog=ACCEPTED_AT_ONCE,
                h11_max_incomplete_event_size=settings.max_header,
            )
        )

    @property
    def max_connections(self) -> int:
        """As asked for, or as many as there can be files."""
        return self._settings.max_connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # uvicorn's backlog is also what is accepted at once

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        admission = self._api.admission
        admission.closing = True
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(
            self._settings.drain_s, admission.leave_all, "the server is shutting down"
        )
        try:
            await super().shutdown(sockets)
        finally:
            giving_up.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Remember the signal instead of raising it again: the command ends in its own way."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = {kind: signal.signal(kind, self.handle_exit) for kind in kinds}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)
            if self._captured_signals:
                self.signal = self._captured_signals[0]


def serve(engine: Engine, settings: ServerSettings, listener: socket.socket) -> int | None:
    """Until a signal, which is returned. A second SIGINT ends at once."""
    server = Server(engine, settings)
    server.run(sockets=[listener])
    return server.signal


class RunningServer:
    """A server in a thread. `stop` drains; a context manager stops at its end."""

    def __init__(self, server: Server, listener: socket.socket) -> None:
        self.url = address(listener)
        self.port: int = listener.getsockname()[1]
        self._server = server
        self._error: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(listener,), name="evewatch-http", daemon=True
        )

    @property
    def app(self) -> object:
        return self._server.config.app

    def start(self) -> RunningServer:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._ready.wait(0.005)
        if not self._server.started:
            raise ConfigError(f"{self.url}: the server did not start ({self._error})")
        return self

    def _run(self, listener: socket.socket) -> None:
        try:
            self._server.run(sockets=[listener])
        except BaseException as error:
            self._error = error
        finally:
            listener.close()
            self._ready.set()

    def stop(self) -> None:
        """Returns when every connection has ended, at most drain_s and a few seconds later."""
        self._server.should_exit = True
        self._thread.join(self._server.config.timeout_graceful_shutdown or GRACE_S)

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve_in_thread(engine: Engine, settings: ServerSettings | None = None) -> RunningServer:
    """Serving when this returns; the engine may be up, or come up later. ConfigError when the
    address cannot be had."""
    settings = settings or ServerSettings()
    return RunningServer(Server(engine, settings), bind(settings)).start()


def _calm(name: str) -> None:
    """uvicorn writes a line for every request that is no HTTP, asyncio for every connection that
    it has no file for."""
    logger = logging.getLogger(name)
    if not any(isinstance(known, OncePerMinute) for known in logger.filters):
        logger.addFilter(OncePerMinute())
