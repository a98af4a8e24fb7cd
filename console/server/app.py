"""Api: the ASGI application, from an engine and settings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from starlette.routing import request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from console.server.admission import Admission
from console.server.completions import Completions
from console.server.errors import ApiError
from console.server.metrics import HttpMetrics, Metrics
from console.server.middleware import A_MODEL, HttpMiddleware, handler_of
from console.server.openapi import document
from console.server.schema import ChatRequest, CompletionRequest
from console.server.settings import ServerSettings
from console.server.shapes import ChatShape, CompletionShape
from console.server.views import Views
from engine.core import Engine


class Api:
    """Serves `engine`, which may still be loading."""

    def __init__(self, engine: Engine, settings: ServerSettings | None = None) -> None:
        settings = settings or ServerSettings()
        self.admission = admission = Admission(engine, settings)
        """What is under way."""
        self.http = HttpMetrics()
        about = document(_version(), settings.api_key is not None)
        views = Views(admission, Metrics(engine, self.http), about)
        asked: dict[str, ASGIApp] = {
            "/v1/chat/completions": Completions(admission, ChatRequest, ChatShape),
            "/v1/completions": Completions(admission, CompletionRequest, CompletionShape),
        }
        seen = {
            "/v1/models": views.models, A_MODEL: views.model, "/health": views.health,
            "/snapshot": views.snapshot, "/metrics": views.metrics,
            "/openapi.json": views.document,
        }  # fmt: skip
        endpoints = Endpoints(asked, {path: request_response(view) for path, view in seen.items()})
        self._app = HttpMiddleware(endpoints, settings, self.http, [*asked, *seen])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class Endpoints:
    """Who answers: one application a path, `asked` with POST, `seen` with GET. ApiError where
    there is none."""

    def __init__(self, asked: Mapping[str, ASGIApp], seen: Mapping[str, ASGIApp]) -> None:
        self._at: dict[str, tuple[tuple[str, ...], ASGIApp]] = {
            **{path: (("POST",), app) for path, app in asked.items()},
            **{path: (("GET", "HEAD"), app) for path, app in seen.items()},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._at.get(handler_of(scope["path"]))
        if found is None:
            raise ApiError(404, "there is nothing here")
        methods, app = found
        if scope["method"] not in methods:
            allow = {"allow": ", ".join(methods)}
            raise ApiError(405, f"not with {scope['method']}", headers=allow)
        await app(scope, receive, send)


def _version() -> str:
    try:
        return version("evewatch")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"
