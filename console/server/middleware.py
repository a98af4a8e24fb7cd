"""The ASGI middleware: who may ask, what is counted, and how every error looks."""

from __future__ import annotations

import hmac
import traceback
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.server.body import ClientGone
from console.server.errors import ApiError
from console.server.metrics import HttpMetrics
from console.server.settings import ServerSettings, is_loopback
from console.server.warn import warnings

OPEN_PATHS = frozenset({"/health"})
"""Asked by load balancers, without a key."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
A_MODEL = "/v1/models/{model}"


class HttpMiddleware:
    def __init__(
        self, app: ASGIApp, settings: ServerSettings, http: HttpMetrics, paths: Collection[str]
    ) -> None:
        self._app, self._settings, self._http = app, settings, http
        self._paths = frozenset(paths)
        self._key = settings.api_key.encode() if settings.api_key else None
        self._checks_host = settings.checks_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._http.open += 1
        try:
            self._check(scope)
            await self._app(scope, receive, counted)
        except ClientGone:
            self._http.disconnects += 1
        except ApiError as error:
            if not status:
                await respond(error, counted)
        except Exception as error:
            _report(error)
            if status:
                raise ClientGone from None  # the connection is closed: the answer is incomplete
            await respond(ApiError(500, "internal error", code="internal"), counted)
        finally:
            self._http.open -= 1
            self._count(scope, status)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if _head_size(scope) > self._settings.max_header:
            raise ApiError(
                431, f"the head is larger than {self._settings.max_header} bytes", code="bad_http"
            )
        if self._checks_host:
            self._check_host(headers.get("host", ""))
        if self._key is None or scope["path"] in OPEN_PATHS:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip().encode() if scheme.lower() == "bearer" else b""
        if not hmac.compare_digest(given, self._key):
            raise ApiError(
                401, "send the server's key as a bearer token in the Authorization header",
                code="invalid_api_key", headers={"www-authenticate": "Bearer"},
            )  # fmt: skip

    def _check_host(self, host: str) -> None:
        """On a loopback address nobody else asks, but a web page can have its visitor ask."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.strip("[]")
        if name and not is_loopback(name) and name not in self._settings.allowed_hosts:
            raise ApiError(
                403, "this server answers to loopback names only; see --allow-host, --api-key",
                code="host_not_allowed",
            )  # fmt: skip

    def _count(self, scope: Scope, status: int) -> None:
        method, handler = scope["method"], handler_of(scope["path"])
        handler = handler if handler in self._paths else "none"
        group = f"{status // 100}xx" if status else "disconnect"
        self._http.counts[handler, method if method in METHODS else "other", group] += 1


def handler_of(path: str) -> str:
    """The endpoint's path: a model's name, which may have slashes, is left out."""
    return A_MODEL if path.startswith("/v1/models/") else path


def _head_size(scope: Scope) -> int:
    """Bytes. The parser limits only heads that come in several parts."""
    fields = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return fields + len(scope.get("raw_path") or b"") + len(scope["query_string"])


async def respond(error: ApiError, send: Send) -> None:
    body = error.encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
    } | error.headers
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _report(error: Exception) -> None:
    """Where it happened, not what it says: its text may quote a request."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    warnings.warn(
        "internal error",
        f"internal error: {type(error).__name__} at {frame.filename}:{frame.lineno}",
    )
