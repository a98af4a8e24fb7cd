"""The OpenAPI document: made from the models that requests are checked with."""

from __future__ import annotations

from typing import Any

from console.server import fields
from console.server.schema import ChatRequest, CompletionRequest

PARTS = {
    "StreamOptions": fields.STREAM_OPTIONS, "Message": fields.MESSAGE, "TextPart": fields.PART,
}  # fmt: skip
REF = "#/components/schemas/"
REASONS = {
    400: "Something in the request does not fit.",
    401: "The key is missing or wrong.",
    403: "The Host header is not allowed.",
    404: "There is nothing of that name.",
    405: "Not with this method.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "The queue is full; Retry-After says when to come again.",
    500: "The engine failed on this request.",
    503: "Nobody is served now; Retry-After says when to come again.",
    504: "The request took longer than it may.",
}


def document(version: str, with_key: bool) -> dict[str, Any]:
    """OpenAPI 3.1. `with_key`: the server asks for a bearer token."""
    components: dict[str, Any] = {"schemas": {"Error": _ERROR, "Usage": _USAGE}}
    for kind in (ChatRequest, CompletionRequest):
        schema = kind.model_json_schema(ref_template=REF + "{model}")
        parts = schema.pop("$defs", {})
        for name, rows in PARTS.items():
            if name in parts:
                fields.add_to_schema(parts[name], rows)
        fields.add_to_schema(schema, fields.REQUEST)
        components["schemas"] |= parts | {kind.__name__: schema}
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "EveWatch", "version": version},
        "paths": {
            "/v1/chat/completions": {"post": _completion("chat", "ChatRequest", "message")},
            "/v1/completions": {"post": _completion("completion", "CompletionRequest", "text")},
            "/v1/models": {"get": _get("models", "The model that is served.", _LIST)},
            "/v1/models/{model}": {
                "get": _get("model", "One model.", {"type": "object"}, 404)
                | {"parameters": [_MODEL]}
            },
            "/health": {
                "get": _get("health", "Whether requests are served.", _HEALTH, plain_503=True)
                | {"security": []}
            },
            "/snapshot": {"get": _get("snapshot", "The engine now.", {"type": "object"})},
            "/metrics": {"get": _metrics()},
            "/openapi.json": {"get": _get("openapi", "This document.", {"type": "object"})},
        },
        "components": components,
    }
    if with_key:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
    return made


def _completion(name: str, request: str, part: str) -> dict[str, Any]:
    answer = {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {
            "choices": {
                "type": "array",
                "items": {"type": "object", "required": ["index", part, "finish_reason"]},
            },
            "usage": {"$ref": REF + "Usage"},
        },
    }
    return {
        "operationId": name,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": REF + request}}},
        },
        "responses": {
            "200": {
                "description": "The answer; server-sent events if `stream` is true.",
                "content": {
                    "application/json": {"schema": answer},
                    # No schema: tools differ on whether it is the stream's or an event's.
                    "text/event-stream": {},
                },
            }
        }
        | _errors(400, 401, 403, 404, 408, 413, 415, 429, 500, 503, 504),
    }


def _get(
    name: str, text: str, schema: dict[str, Any], *more: int, plain_503: bool = False
) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    errors = _errors(401, 403, 500, 503, *more)
    if plain_503:
        errors["503"] = {"description": "They are not.", "content": content}
    return {
        "operationId": name,
        "responses": {"200": {"description": text, "content": content}} | errors,
    }


def _metrics() -> dict[str, Any]:
    made = _get("metrics", "Prometheus text.", {})
    made["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return made


def _errors(*statuses: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": REF + "Error"}}}
    return {str(s): {"description": REASONS[s], "content": content} for s in sorted(statuses)}


_TEXT_OR_NULL = {"type": ["string", "null"]}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": _TEXT_OR_NULL,
                "code": _TEXT_OR_NULL,
            },
        }
    },
}
_COUNT = {"type": "integer", "minimum": 0}
_USAGE = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
        "prompt_tokens": _COUNT,
        "completion_tokens": _COUNT,
        "total_tokens": _COUNT,
    },
}
_LIST = {"type": "object", "required": ["object", "data"]}
_HEALTH = {"type": "object", "required": ["status"]}
_MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
