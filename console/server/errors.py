"""ApiError: what a client did wrong, or what it has to wait for, in OpenAI's shape."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


@dataclass(eq=False)
class ApiError(Exception):
    status: int
    message: str
    param: str | None = None
    """The field that is meant."""
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        if self.status == 429:
            return "rate_limit_error"
        if self.status >= 500:
            return "server_error"
        return KINDS.get(self.status, "invalid_request_error")

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def encode(self) -> bytes:
        # A client's own text may come back in a message; lone surrogates must not break it.
        return json.dumps(self.body()).encode()


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param, code)


def busy(message: str, seconds: int) -> ApiError:
    return ApiError(429, message, code="queue_full", headers={"retry-after": str(seconds)})


def unavailable(message: str, seconds: int = 5) -> ApiError:
    return ApiError(503, message, code="unavailable", headers={"retry-after": str(seconds)})
