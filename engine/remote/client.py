"""HTTP to a target: capped, timed, and without a word of the token in what goes wrong."""

from __future__ import annotations

import re
import ssl
import time
from typing import Any

import httpx

from engine.errors import ConfigError
from engine.remote.errors import Unparsable, Unreachable, WrongEngine
from engine.remote.metrics.metrics_page import MAX_BODY

CONNECT_S = 2.0
READ_S = 5.0
"""Without a byte."""
WHOLE_S = 10.0
"""For a whole answer, however steadily it drips."""
IDLE_S = 2.0
"""A connection is kept so long: shorter than servers do, so that none closes under a request."""
NO_SUCH_PAGE = (404, 405, 501)
_KNOWN_PATHS = ("/prometheus/metrics", "/metrics", "/snapshot")
_API_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1")


class NoSuchPage(WrongEngine):
    """The server is there, this address is not."""


class Client:
    """Of one target. Raises Trouble for everything that can go wrong with an answer.

    `url` is the server (http://host:8000), its /v1, or the very page to read.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = checked(url)
        self.base, self.page = _split(self.url)
        headers = {"Accept-Encoding": "identity", "User-Agent": "evewatch"}
        if token:
            if not (token.isascii() and token.isprintable()):
                raise ConfigError(f"{url}: its token has characters that no header can carry")
            headers["Authorization"] = f"Bearer {token}"
        self._token = token
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            follow_redirects=False,  # the token is for this host
            trust_env=False,
            transport=transport,
            verify=_trusted(self.url),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=IDLE_S),
        )

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, accept: str = "text/plain;version=0.0.4, */*;q=0.5") -> bytes:
        """The body of a 200."""
        try:
            end = time.monotonic() + WHOLE_S
            with self._http.stream("GET", self.base + path, headers={"Accept": accept}) as answer:
                self._check(answer, path)
                return _body(answer, end)
        except httpx.TimeoutException as error:
            raise Unreachable(f"no answer within {READ_S:g} s", certain=False) from error
        except httpx.ConnectError as error:
            raise Unreachable(self.reason(error)) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Unreachable(self.reason(error), certain=False) from error

    def get_json(self, path: str) -> Any:
        """None when there is nothing to be had: for what is good to know, not needed."""
        import json

        try:
            return json.loads(self.get(path, "application/json"))
        except (Unreachable, Unparsable, WrongEngine, ValueError, RecursionError):
            return None

    def stream(self, path: str, body: dict[str, Any], read_s: float) -> Any:
        """A context manager with the answer to a POST, which streams."""
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S, read=read_s)
        return self._http.stream("POST", self.base + path, json=body, timeout=timeout)

    def _check(self, answer: httpx.Response, path: str) -> None:
        code = answer.status_code
        if code == 200:
            return
        if code in (401, 403):
            why = "its token is refused" if self._token else "it wants a token (see token_env)"
            raise Unreachable(f"answered {code}: {why}")
        if code in NO_SUCH_PAGE:
            raise NoSuchPage(f"answered {code} to {path}")
        if 300 <= code < 400:
            raise Unreachable(f"answered {code}: it redirects; give the address it leads to")
        raise Unreachable(f"answered {code} {answer.reason_phrase}".rstrip())

    def reason(self, error: Exception) -> str:
        text = re.sub(r"^\[Errno -?\d+\] ", "", " ".join(str(error).split()))[:200]
        text = text or type(error).__name__
        return text.replace(self._token, "…") if self._token else text


def checked(url: str) -> str:
    """Raises ConfigError for what cannot be an address. Credentials in it are refused."""
    try:
        parsed = httpx.URL(url)
        valid = parsed.scheme in ("http", "https") and bool(parsed.host)
        valid = valid and 0 < (parsed.port or 80) < 1 << 16
    except httpx.InvalidURL:
        valid = False
    if not valid:
        raise ConfigError(f"{url!r}: expected the address of a server, http(s)://host:port")
    if parsed.userinfo:
        raise ConfigError("an address with a password in it would be shown; use token_env instead")
    if parsed.query or parsed.fragment:
        raise ConfigError(f"{url!r}: leave out what follows the path")
    return url.rstrip("/")


def _trusted(url: str) -> ssl.SSLContext | bool:
    """The system's certificates and SSL_CERT_FILE: inside a company they are its own."""
    return ssl.create_default_context() if url.startswith("https:") else False


def _split(url: str) -> tuple[str, str | None]:
    """The server, and the page if the address names one."""
    for path in _KNOWN_PATHS:
        if url.endswith(path):
            return url.removesuffix(path), path
    for path in _API_PATHS:
        if url.endswith(path):
            return url.removesuffix(path), None
    return url, None


def _body(answer: httpx.Response, end: float) -> bytes:
    size, parts = 0, []
    for chunk in answer.iter_bytes():
        size += len(chunk)
        if size > MAX_BODY:
            raise Unparsable(f"the page has more than {MAX_BODY >> 20} MiB")
        if time.monotonic() > end:
            raise Unreachable(f"the page was not whole within {WHOLE_S:g} s", certain=False)
        parts.append(chunk)
    return b"".join(parts)
