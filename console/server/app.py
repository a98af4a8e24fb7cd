"""build_app: the ASGI application, from an engine and settings."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.server.admission import Admission
from console.server.completions import Completions
from console.server.errors import ApiError
from console.server.metrics import HttpMetrics, Metrics
from console.server.middleware import HttpMiddleware
from console.server.openapi import document
from console.server.schema import ChatRequest, CompletionRequest
from console.server.settings import ServerSettings
from console.server.shapes import ChatShape, CompletionShape
from console.server.views import Views
from engine.core import Engine


def build_app(engine: Engine, settings: ServerSettings | None = None) -> Starlette:
    """Serves `engine`, which may still be loading; `app.state.admission` is what is under way."""
    settings = settings or ServerSettings()
    admission, http = Admission(engine, settings), HttpMetrics()
    views = Views(
        admission, Metrics(engine, http), document(_version(), settings.api_key is not None)
    )
    chat = Completions(admission, ChatRequest, ChatShape)
    plain = Completions(admission, CompletionRequest, CompletionShape)
    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/completions", plain, methods=["POST"]),
        Route("/v1/models", views.models),
        Route("/v1/models/{model:path}", views.model),
        Route("/health", views.health),
        Route("/snapshot", views.snapshot),
        Route("/metrics", views.metrics),
        Route("/openapi.json", views.document),
    ]
    middleware = Middleware(
        HttpMiddleware, settings=settings, http=http, paths=[route.path for route in routes]
    )
    app = Starlette(
        routes=routes,
        middleware=[middleware],
        exception_handlers={HTTPException: _http_error, ApiError: _api_error},  # type: ignore[dict-item]
    )
    app.router.redirect_slashes = False
    app.state.admission, app.state.http = admission, http
    return app


async def _http_error(request: Request, error: HTTPException) -> Response:
    """Starlette's own: no such path, not with this method."""
    texts = {404: "there is nothing here", 405: f"not with {request.method}"}
    made = ApiError(error.status_code, texts.get(error.status_code, error.detail))
    return Response(made.encode(), error.status_code, error.headers, "application/json")


async def _api_error(request: Request, error: ApiError) -> Response:
    return Response(error.encode(), error.status, error.headers, "application/json")


def _version() -> str:
    try:
        return version("evewatch")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0"
