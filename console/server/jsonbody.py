"""A request's body as JSON, strictly: nothing that two readers could understand differently."""

from __future__ import annotations

import json
import math
from typing import Any

from console.server.errors import ApiError, bad_request

DEPTH_MOST = 32


def parse(body: bytes) -> dict[str, Any]:
    """The object in `body`. ApiError 400 for anything else.

    Refused: what is not UTF-8, a key twice in one object, NaN and infinities (1e999 as well),
    numbers of thousands of digits, nesting deeper than DEPTH_MOST.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad("the body is not UTF-8") from error
    try:
        data = _STRICT.decode(text)
    except RecursionError as error:
        raise _bad("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _bad(f"the body is not valid JSON: {error.msg} at {where}") from error
    except ValueError as error:  # int() has a limit on digits
        raise _bad("the body has a number of too many digits") from error
    if not isinstance(data, dict):
        raise _bad("the body must be a JSON object")
    if _too_deep(data):
        raise _bad(f"the body is nested more than {DEPTH_MOST} deep")
    return data


def _bad(message: str) -> ApiError:
    return bad_request(message, code="invalid_json")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise _bad("the body has an object with the same key twice")
    return made


def _constant(name: str) -> float:
    raise _bad(f"the body has {name}, which is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _bad("the body has a number that is too large")
    return value


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_finite)


def _too_deep(data: Any) -> bool:
    """Level by level; lists of plain values cost one look at each."""
    level = [data]
    for _ in range(DEPTH_MOST):
        below: list[Any] = []
        for value in level:
            inner = value.values() if isinstance(value, dict) else value
            below.extend(item for item in inner if isinstance(item, dict | list))
        if not below:
            return False
        level = below
    return True
