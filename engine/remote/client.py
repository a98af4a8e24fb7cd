"""HTTP to a target: capped, timed, and without a word of the token in what goes wrong."""

from __future__ import annotations

import json
import ssl
import time
from typing import Any

import httpx

from engine.observing.watchable import Reach
from engine.remote import address
from engine.remote.errors import Unparsable, Unreachable, WrongEngine, complaint, one_line
from engine.remote.metrics.metrics_page import MAX_BODY

CONNECT_S = 2.0
READ_S = 5.0
"""Without a byte."""
WHOLE_S = 10.0
"""For a whole answer, however steadily it drips."""
IDLE_S = 2.0
"""A connection is kept so long: shorter than servers do, so that none closes under a request."""
NO_SUCH_PAGE = (404, 405, 501)
READ = ("gzip", "x-gzip", "deflate")
PACKED = (*READ, "br", "zstd", "compress", "x-compress")
"""What a proxy may do to an answer unasked. Only what grows within bounds is read: a chunk in zstd,
or one packed twice, can grow to any size. What else stands there (none, utf-8) changes no byte."""


class NoSuchPage(WrongEngine):
    """The server is there, this address is not."""


class Client:
    """Of one target. Raises Trouble for everything that can go wrong with an answer."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = address.parse(url)
        self.reach = Reach(url, token)
        self.server = self.address.server
        """Path before /v1; the probe moves it to where it finds the metrics page."""
        self._token = token
        self._http = httpx.Client(
            base_url=self.address.origin,
            headers={"Accept-Encoding": "identity", "User-Agent": "evewatch"}
            | address.bearer(token, f"{self.address.shown}: its token"),
            timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
            follow_redirects=False,  # the token is for this host: `get` follows on it alone
            trust_env=False,
            transport=transport,
            verify=_trusted(self.address.origin),
            limits=httpx.Limits(max_connections=8, keepalive_expiry=IDLE_S),
        )

    @property
    def url(self) -> str:
        """As it may be shown."""
        return self.address.shown

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, accept: str = "text/plain;version=0.0.4, */*;q=0.5") -> bytes:
        """The body of a 200 at this path of the host, which may redirect on itself."""
        try:
            end, at = time.monotonic() + WHOLE_S, path
            for _ in range(address.MOST_MOVES):
                with self._http.stream("GET", at, headers={"Accept": accept}) as answer:
                    if answer.status_code not in address.MOVED:
                        self._check(answer, path)
                        return _body(answer, end)
                    at = self._led_to(answer)
            raise Unreachable(f"{path} redirects in a circle")
        except httpx.TimeoutException as error:
            raise Unreachable(f"no answer within {READ_S:g} s", certain=False) from error
        except httpx.ConnectError as error:
            raise Unreachable(self.reason(error)) from error
        except httpx.DecodingError as error:
            raise Unparsable(f"the page cannot be decompressed: {self.reason(error)}") from error
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            raise Unreachable(self.reason(error), certain=False) from error

    def get_json(self, path: str) -> Any:
        """None when there is nothing to be had: for what is good to know, not needed."""
        try:
            return json.loads(self.get(path, "application/json"))
        except (Unreachable, Unparsable, WrongEngine, ValueError, RecursionError):
            return None

    def stream(self, call: str, body: dict[str, Any], read_s: float) -> Any:
        """A context manager with the answer to a POST, which streams."""
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S, read=read_s)
        path = self.server + call + self.address.query
        return self._http.stream("POST", path, json=body, timeout=timeout, auth=address.SameHost())

    def _led_to(self, answer: httpx.Response) -> str:
        """Path and query that a redirect leads to. Raises Unreachable for another host's."""
        url = address.led_to(answer)
        if url is None:
            where = answer.request.url.join(answer.headers.get("location", ""))
            raise Unreachable(
                f"answered {answer.status_code}: it redirects; if you trust it, give "
                f"{address.shown(str(where))}"
            )
        return url.raw_path.decode("ascii")

    def _check(self, answer: httpx.Response, path: str) -> None:
        code = answer.status_code
        if code == 200:
            return
        at = answer.request.url.raw_path.decode("ascii")
        if code in NO_SUCH_PAGE and at != path:
            raise Unreachable(f"it redirects to {address.shown(at)}, which answered {code}")
        if code in NO_SUCH_PAGE:
            raise NoSuchPage(f"answered {code} to {address.shown(path)}")
        why = f"answered {code} {answer.reason_phrase}".rstrip()
        if code in (401, 403):
            wants = "its token is refused" if self._token else "it wants a token (see token_env)"
            why = f"answered {code}: {wants}"
        said = self.hide(complaint(answer))
        raise Unreachable(f"{why}: {said}" if said else why)

    def reason(self, error: Exception) -> str:
        """One line of what went wrong on the way."""
        return self.hide(one_line(str(error))) or type(error).__name__

    def hide(self, text: str) -> str:
        """The text without this target's secrets."""
        return self.address.hide(text, self._token)


def _trusted(url: str) -> ssl.SSLContext | bool:
    """The system's certificates and SSL_CERT_FILE: inside a company they are its own."""
    return ssl.create_default_context() if url.startswith("https:") else False


def unread_coding(answer: httpx.Response) -> str | None:
    """How the answer is encoded, if it is in a way that is not read here."""
    parts = [part.strip() for part in answer.headers.get("content-encoding", "").lower().split(",")]
    packed = [part for part in parts if part in PACKED]
    return next((part for part in packed if part not in READ or len(packed) > 1), None)


def _body(answer: httpx.Response, end: float) -> bytes:
    if coding := unread_coding(answer):
        raise Unparsable(f"the page is encoded ({coding}), which was not asked for")
    size, parts = 0, []
    for chunk in answer.iter_bytes():
        size += len(chunk)
        if size > MAX_BODY:
            raise Unparsable(f"the page has more than {MAX_BODY >> 20} MiB")
        if time.monotonic() > end:
            raise Unreachable(f"the page was not whole within {WHOLE_S:g} s", certain=False)
        parts.append(chunk)
    return b"".join(parts)
