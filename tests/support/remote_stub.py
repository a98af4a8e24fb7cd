"""What external engines are tested against: pages from files, a server in memory, and one behind
a socket that can be killed and started again on its port."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from engine.remote import attach
from engine.remote.engine import RemoteEngine
from repository import FIXTURES

URL = "http://engine.test:8000"


def page(name: str) -> bytes:
    """vllm/busy -> the bytes of that scrape."""
    return (FIXTURES / f"{name}.prom").read_bytes()


def with_value(body: bytes, name: str, value: str) -> bytes:
    """The page with every sample of one metric set to `value`."""
    lines = [
        line.rsplit(b" ", 1)[0] + b" " + value.encode()
        if line.startswith((name.encode() + b"{", name.encode() + b" "))
        else line
        for line in body.split(b"\n")
    ]
    assert lines != body.split(b"\n"), name
    return b"\n".join(lines)


class Server:
    """In memory: `pages` by path, as bytes, an answer, or something to raise."""

    def __init__(self, metrics: Any = None, **pages: Any) -> None:
        self.pages: dict[str, Any] = {} if metrics is None else {"/metrics": metrics}
        self.pages.update(pages)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        found = self.pages.get(request.url.path)
        if callable(found):
            found = found(request)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, httpx.Response):
            return found
        return httpx.Response(404) if found is None else httpx.Response(200, content=found)

    def attach(self, url: str = URL, **options: Any) -> RemoteEngine:
        return attach(url, transport=httpx.MockTransport(self), **options)


class SocketServer:
    """Behind a real socket; `kill` and `start` keep the port."""

    def __init__(self, pages: dict[str, bytes]) -> None:
        self.pages = pages
        self.port = 0
        self.asked: list[dict[str, str]] = []
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> SocketServer:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # a killed server leaves no open connection behind

            def do_GET(self) -> None:
                stub.asked.append(dict(self.headers))
                body = stub.pages.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        return self

    def kill(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> SocketServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
