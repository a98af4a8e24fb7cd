"""What a client may send: OpenAI's fields that this engine has, and vLLM's further ones.

The models here are also the published OpenAPI document, together with fields.py: what becomes of
the fields that these models do not have.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)

from console.server import fields
from console.server.errors import ApiError, bad_request
from console.server.fields import check_extras
from engine.request import MAX_LOGPROBS

NO_NUL = r"^[^\x00]*$"
SEED_MOST = 2**63 - 1
STOPS_MOST, STOP_LONGEST = 16, 256
MESSAGES_MOST = 4096
PROMPTS_MOST = 2048

Text = Annotated[str, StringConstraints(pattern=NO_NUL)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=STOP_LONGEST, pattern=NO_NUL)]
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]


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
        if type(item) is not int or not 0 <= item < 2**31:
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
        "maximum": 2**31 - 1}}  # fmt: skip
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


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True)


class StreamOptions(_Part):
    include_usage: bool | None = None


class TextPart(_Part):
    type: Literal["text"]
    text: Text


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


class Message(_Part):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: Text | None = None
    tool_calls: Annotated[list[Nested], Field(fail_fast=True)] | None = None
    tool_call_id: Text | None = None
    function_call: Nested | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    refusal: Text | None = None

    def plain(self) -> dict[str, Any]:
        """As the chat template takes it. `developer` is what newer clients call `system`."""
        role = "system" if self.role == "developer" else self.role
        content = self.content or ""
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        more = {name: value for name in MORE_OF_A_MESSAGE if (value := getattr(self, name))}
        if self.tool_calls:
            more["tool_calls"] = [_with_parsed_arguments(call) for call in self.tool_calls]
        return {"role": role, "content": content, **more}


MORE_OF_A_MESSAGE = tuple(name for name in Message.model_fields if name not in ("role", "content"))
"""Given to the chat template; see `console.server.messages`."""


def _with_parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Templates write a call's arguments as JSON; the API has them as text already."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


class Common(BaseModel):
    """What both APIs take."""

    model_config = ConfigDict(strict=True, extra="allow", hide_input_in_errors=True)

    model: Text | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=1e-6, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    seed: Annotated[int, Field(ge=-SEED_MOST - 1, le=SEED_MOST)] | None = None
    stop: (
        StopText | Annotated[list[StopText], Field(max_length=STOPS_MOST, fail_fast=True)] | None
    ) = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64, fail_fast=True)] | None = None
    ignore_eos: bool | None = None
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    user: Annotated[str, StringConstraints(max_length=512, pattern=NO_NUL)] | None = None

    def prompts(self) -> list[Any]:
        """Text, token ids or messages, as the engine takes them."""
        raise NotImplementedError

    @property
    def choices_each(self) -> int:
        return self.n or 1

    @property
    def longest(self) -> int | None:
        """Output tokens that were asked for."""
        return self.max_tokens

    @property
    def likeliest(self) -> int | None:
        """How many log probabilities a token is to come with; None: not even its own."""
        return None


class CompletionRequest(Common):
    prompt: Prompt
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @property
    def longest(self) -> int | None:
        return self.max_tokens or 16

    @property
    def likeliest(self) -> int | None:
        return self.logprobs

    def prompts(self) -> list[Any]:
        several = isinstance(self.prompt, list) and not isinstance(self.prompt[0], int)
        return self.prompt if several else [self.prompt]


class ChatRequest(Common):
    messages: Annotated[
        list[Message], Field(min_length=1, max_length=MESSAGES_MOST, fail_fast=True)
    ]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @property
    def longest(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def likeliest(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def prompts(self) -> list[Any]:
        return [[message.plain() for message in self.messages]]


OF_VLLM = ("top_k", "min_tokens", "stop_token_ids", "ignore_eos", "priority")
HONOURED = {
    "OpenAI": sorted(
        {*ChatRequest.model_fields, *CompletionRequest.model_fields}.difference(OF_VLLM)
    ),
    "vLLM": list(OF_VLLM),
    "`stream_options`": list(StreamOptions.model_fields),
    "a message": list(Message.model_fields),
    "a text part": list(TextPart.model_fields),
}
"""By who has the field first."""

Asked = TypeVar("Asked", bound=Common)


def read(kind: type[Asked], data: dict[str, Any]) -> Asked:
    """The request in `data`; ApiError 400 naming the first field that does not fit."""
    try:
        asked = kind.model_validate(data)
    except ValidationError as error:
        raise _explain(error) from None
    _check_extras(asked)
    if asked.min_tokens and asked.longest is not None and asked.min_tokens > asked.longest:
        raise bad_request("min_tokens: is more than max_tokens", "min_tokens")
    return asked


def _check_extras(asked: Common) -> None:
    check_extras(asked.model_extra or {}, fields.REQUEST)
    if asked.stream_options is not None:
        extras = asked.stream_options.model_extra or {}
        check_extras(extras, fields.STREAM_OPTIONS, "stream_options.")
    for number, message in enumerate(asked.messages if isinstance(asked, ChatRequest) else ()):
        where = f"messages.{number}."
        check_extras(message.model_extra or {}, fields.MESSAGE, where)
        for at, part in enumerate(message.content if isinstance(message.content, list) else ()):
            check_extras(part.model_extra or {}, fields.PART, f"{where}content.{at}.")


def _explain(error: ValidationError) -> ApiError:
    """Of a field that may be of several kinds, the complaint of the one that came closest."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    same = [item for item in found if item["loc"][:1] == found[0]["loc"][:1]]
    first = max(same, key=lambda item: len(item["loc"]))
    where = [str(part) for part in first["loc"] if not _is_branch(part)]
    name = ".".join(where)[:100] or None
    message = first["msg"].removeprefix("Value error, ")
    missing = first["type"] == "missing"
    return bad_request(
        f"{name}: {'is missing' if missing else message}",
        name,
        "missing" if missing else "invalid_value",
    )


def _is_branch(part: int | str) -> bool:
    """pydantic names the branch of a union in a field's path."""
    return isinstance(part, str) and not part.isidentifier()
