"""Reading a request's body, up to a size and within a time."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from console.server.errors import ApiError, bad_request

CLOSE = {"connection": "close"}
"""What the client still sends is not read."""


class ClientGone(Exception):
    """Nobody is there to answer."""


async def read_body(scope: Scope, receive: Receive, most: int, seconds: float) -> bytes:
    """ApiError 413, 408 or 415; ClientGone when the connection ends before the body does."""
    headers = Headers(scope=scope)
    _check_kind(headers)
    length = headers.get("content-length")
    if length is not None and int(length) > most:  # digits: the HTTP parser has seen to it
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                body += message.get("body", b"")
                if len(body) > most:
                    raise _too_large(most)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise ApiError(
            408, f"the body was not complete within {seconds:g} s", code="timeout", headers=CLOSE
        ) from None


def _check_kind(headers: Headers) -> None:
    """JSON only: a browser sends that to a foreign server only when the server agrees to it."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "send the body as application/json", code="unsupported_media_type")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise bad_request("send the body without a content-encoding")


def _too_large(most: int) -> ApiError:
    return ApiError(
        413, f"the body is larger than {most} bytes", code="request_too_large", headers=CLOSE
    )
