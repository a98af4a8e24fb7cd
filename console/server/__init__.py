"""The HTTP front end: OpenAI's API, health, metrics and snapshots of the engine in this process.

`Api` is the ASGI application, `serve` runs it in the calling thread until a signal,
`serve_in_thread` beside something else. docs/serving.md says what it promises.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from console.server.app import Api
    from console.server.run import RunningServer, serve, serve_in_thread
    from console.server.settings import ServerSettings

__all__ = ["Api", "RunningServer", "ServerSettings", "serve", "serve_in_thread"]

_HOME = {
    "Api": "console.server.app",
    "RunningServer": "console.server.run",
    "serve": "console.server.run",
    "serve_in_thread": "console.server.run",
    "ServerSettings": "console.server.settings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'console.server' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
