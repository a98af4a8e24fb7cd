"""Where a target is: its address, read once for metrics and API alike, and its bearer token.

An address keeps its path and its query. What is secret in it is refused (a password) or sent and
never shown (a key in the query).
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_plus

import httpx

from engine.errors import ConfigError

METRICS = ("/metrics", "/prometheus/metrics")
"""Where engines have their page; TensorRT-LLM at the second, its /metrics is JSON."""
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
_TAILS = (CHAT, COMPLETIONS, "/v1/models", "/v1", "/snapshot", "/health")
"""What people copy with a server's address; none of these is a metrics page."""
LEAST_SECRET = 4
"""Letters of a secret that is looked for in the texts of others: shorter ones are in any text."""
_SECRET = re.compile(
    r"([?&][^=&]*(?:key|token|secret|passw|auth|sig|credential)[^=&]*=)([^&#]*)", re.IGNORECASE
)


@dataclass(frozen=True)
class Address:
    """Made by `parse`. Paths are as sent, percent-encoded."""

    shown: str
    """For screens, reports and logs: no secret is in it."""
    origin: str
    """Scheme, host and port."""
    server: str
    """Path before /v1, "" at the root; no slash at its end."""
    named: str | None
    """The API's path, where the address names one of its calls."""
    page: str | None
    """Path that may be a metrics page; None: the address is a server's."""
    query: str
    """With its question mark, or ""."""

    def hide(self, text: str, token: str | None = None) -> str:
        """Foreign text without this target's secrets: servers repeat what they refuse."""
        for secret in (token, *(unquote_plus(found[2]) for found in _SECRET.finditer(self.query))):
            if secret and len(secret) >= LEAST_SECRET:
                text = text.replace(secret, "…")
        return text

    def api(self, call: str) -> str:
        """Path and query of `call` (/v1/…)."""
        return self.server + call + self.query

    def pages(self) -> list[tuple[str, str]]:
        """Where the metrics may be, the likeliest first: path with query, and the server's path
        if the page is there."""
        found = [(self.page, _server_of(self.page))] if self.page else []
        if not self.page or not self.page.rstrip("/").endswith(METRICS[0]):
            below = (self.page or self.server).rstrip("/")
            found += [(below + path, below) for path in METRICS]
        return [
            (path + self.query, server)
            for page, server in found
            for path in (page, page.rstrip("/") if page.endswith("/") else f"{page}/")
        ]


def parse(url: str, embedded: bool = False) -> Address:
    """Raises ConfigError, without a secret in its text, for what cannot be an address. `embedded`:
    a name could have been given instead."""
    try:
        parsed = httpx.URL(url)
        valid = parsed.scheme in ("http", "https") and bool(parsed.host)
        valid = valid and 0 < (parsed.port or 80) < 1 << 16
    except (httpx.InvalidURL, ValueError):
        valid = False
    if not valid:
        given = shown(url) or repr(url)
        if embedded:
            raise ConfigError(f"{given}: expected embedded, null or http(s)://host:port")
        raise ConfigError(f"{given}: expected the address of a server, http(s)://host:port")
    if parsed.userinfo:
        raise ConfigError(
            f"{shown(url)}: an address with a password in it would be shown; "
            "put the token into an environment variable and name it with --token-env (token_env)"
        )
    path, mark, query = parsed.raw_path.decode("ascii").partition("?")
    plain = path.rstrip("/")
    tail = next((tail for tail in _TAILS if plain.endswith(tail)), None)
    server = plain if tail is None else plain.removesuffix(tail)
    return Address(
        shown=shown(url),
        origin=f"{parsed.scheme}://{parsed.netloc.decode('ascii')}",
        server=server,
        named=tail if tail in (CHAT, COMPLETIONS) else None,
        page=path if tail is None and plain else None,
        query=mark + query,
    )


def shown(url: str) -> str:
    """The address without a password, the values of keys in its query, and control characters."""
    text = "".join(c if c.isprintable() else "�" for c in url)
    text = re.sub(r"//.*@", "//…@", text) if "@" in text else text
    return _SECRET.sub(r"\1…", text).partition("#")[0].rstrip("/")


def read_token(
    variable: str | None, environment: Mapping[str, str] = os.environ, where: str = "--token-env"
) -> str | None:
    """The bearer token in that environment variable; None when no variable is named.

    Raises ConfigError, naming `where` it was asked for, when the variable is missing or empty, or
    holds what no header can carry.
    """
    if variable is None:
        return None
    found = environment.get(variable, "").strip()
    if not found:
        state = "is empty" if variable in environment else "is not set"
        raise ConfigError(
            f"{where}: the environment variable {variable} that should hold the token {state}"
        )
    bearer(found, f"{where}: {variable}")
    return found


def bearer(token: str | None, where: str = "the bearer token") -> dict[str, str]:
    """The header that carries it, if there is one. Raises ConfigError when none can."""
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{where}: has characters that no header can carry")
    return {"Authorization": f"Bearer {token}"}  # not shown


MOVED = (301, 302, 303, 307, 308)
MOST_MOVES = 5


def led_to(answer: httpx.Response) -> httpx.URL | None:
    """Where a redirect leads on the same host; None for another one's, which must not see the
    token. A proxy that ends TLS names http: the way that we came stays. So does the query, with
    the key that may be in it, where the place that is named has none."""
    here = answer.request.url
    there = here.join(answer.headers.get("location", ""))
    same = there.host == here.host and (there.port or -1) == (here.port or -1)
    if not same or (there.scheme, here.scheme) == ("https", "http"):
        return None
    return here.copy_with(raw_path=there.copy_with(query=there.query or here.query).raw_path)


class SameHost(httpx.Auth):
    """For httpx's `auth`: follows a host's redirects on itself, with token and body."""

    requires_request_body = True

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        for _ in range(MOST_MOVES):
            answer = yield request
            kept = (307, 308) if request.method == "POST" else MOVED
            url = led_to(answer) if answer.status_code in kept else None
            if url is None:
                return
            request = httpx.Request(
                request.method,
                url,
                headers=request.headers,
                content=request.content,
                extensions=request.extensions,
            )


def _server_of(page: str) -> str:
    """The server that has this page: what comes before a known path, else the folder."""
    plain = page.rstrip("/")
    for path in reversed(METRICS):
        if plain.endswith(path):
            return plain.removesuffix(path)
    return plain.rpartition("/")[0]
