"""Kinds of values that requests have: texts, token ids, prompts."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from engine.request import TOKEN_ID_MOST

NO_NUL = r"^[^\x00]*$"
STOP_LONGEST = 256
PROMPTS_MOST = 2048

Text = Annotated[str, StringConstraints(pattern=NO_NUL)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=STOP_LONGEST, pattern=NO_NUL)]
TokenId = Annotated[int, Field(ge=0, le=TOKEN_ID_MOST)]


def check_prompt(value: Any) -> Any:
    """Text, token ids, or a list of either. Stops at the first item that does not fit."""
    if isinstance(value, str):
        return check_text(value)
    if not isinstance(value, list) or not value:
        raise ValueError("expected text, token ids, or a non-empty list of either")
    if type(value[0]) is int:
        return check_ids(value)
    if len(value) > PROMPTS_MOST:
        raise ValueError(f"expected at most {PROMPTS_MOST} prompts, got {len(value)}")
    if all(isinstance(item, str) for item in value):
        return [check_text(item) for item in value]
    if all(isinstance(item, list) for item in value):
        return [check_ids(item) for item in value]
    raise ValueError("expected text, token ids, or a list of either")


def check_ids(ids: list[Any]) -> list[int]:
    if not ids:
        raise ValueError("a prompt has no tokens")
    for item in ids:
        if type(item) is not int or not 0 <= item <= TOKEN_ID_MOST:
            raise ValueError("expected token ids: whole numbers of at least 0")
    return ids


def check_text(text: str) -> str:
    if not text:
        raise ValueError("is empty; say something")
    if "\0" in text:
        raise ValueError("has a null byte")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode (a lone surrogate)") from None
    return text


_IDS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0,
        "maximum": TOKEN_ID_MOST}}  # fmt: skip
_TEXT = {"type": "string", "minLength": 1, "pattern": NO_NUL}
Prompt = Annotated[
    Any,
    AfterValidator(check_prompt),
    WithJsonSchema(
        {
            "anyOf": [
                _TEXT,
                _IDS,
                {"type": "array", "minItems": 1, "maxItems": PROMPTS_MOST, "items": _TEXT},
                {"type": "array", "minItems": 1, "maxItems": PROMPTS_MOST, "items": _IDS},
            ]
        }
    ),
]


def check_nested(value: Any) -> Any:
    """Anything that can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    if "\\u0000" in text:
        raise ValueError("has a null byte")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode (a lone surrogate)") from None
    return value


Nested = Annotated[dict[str, Any], AfterValidator(check_nested)]


class Part(BaseModel):
    """Reads strictly, and keeps what it does not know for `fields.check_extras`."""

    model_config = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True)
