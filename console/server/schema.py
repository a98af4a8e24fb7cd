"""What a client may send: OpenAI's fields that this engine has, and vLLM's further ones.

The models here are also the published OpenAPI document, together with fields.py: what becomes of
the fields that these models do not have.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StringConstraints, ValidationError

from console.server import fields
from console.server.errors import ApiError, bad_request
from console.server.fields import check_extras
from console.server.messages import FIELDS_OF_THEIR_OWN, Message, TextPart
from console.server.values import NO_NUL, Nested, Part, Prompt, StopText, Text, TokenId
from engine.request import BIAS_MOST, MAX_LOGPROBS, PENALTY_MOST
from engine.text.completion import Chat

SEED_MOST = 2**63 - 1
STOPS_MOST = 16
LISTED_MOST = 1024
MESSAGES_MOST = 4096

Penalty = Annotated[float, Field(ge=-PENALTY_MOST, le=PENALTY_MOST)]
TokenKey = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[float, Field(ge=-BIAS_MOST, le=BIAS_MOST)]


class StreamOptions(Part):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Common(Part):
    """What both APIs take."""

    model: Text | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    seed: Annotated[int, Field(ge=-SEED_MOST - 1, le=SEED_MOST)] | None = None
    stop: (
        StopText | Annotated[list[StopText], Field(max_length=STOPS_MOST, fail_fast=True)] | None
    ) = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    logit_bias: Annotated[dict[TokenKey, Bias], Field(max_length=LISTED_MOST)] | None = None
    allowed_token_ids: Annotated[list[TokenId], Field(min_length=1, fail_fast=True)] | None = None
    bad_words: Annotated[list[StopText], Field(max_length=STOPS_MOST, fail_fast=True)] | None = None
    include_stop_str_in_output: bool | None = None
    no_stop_trim: bool | None = None
    n_predict: Annotated[int, Field(ge=-1)] | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    truncation_side: Literal["left", "right"] | None = None
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
        """Output tokens that were asked for; None: what fits. llama.cpp has a name of its own."""
        given = self.max_tokens if self.n_predict is None else self.n_predict
        return None if given == -1 else given

    @property
    def likeliest(self) -> int | None:
        """How many log probabilities a token is to come with; None: not even its own."""
        return None


class CompletionRequest(Common):
    prompt: Prompt
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    best_of: Annotated[int, Field(ge=0, le=128)] | None = None
    add_special_tokens: bool | None = None

    @property
    def longest(self) -> int | None:
        return super().longest or (None if self.n_predict else 16)

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
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Nested | None = None
    documents: Annotated[list[Nested], Field(max_length=LISTED_MOST)] | None = None
    reasoning_effort: Text | None = None
    add_special_tokens: Literal[False] | None = None

    @property
    def longest(self) -> int | None:
        return self.max_completion_tokens or super().longest

    @property
    def likeliest(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def prompts(self) -> list[Any]:
        names = dict(self.chat_template_kwargs or {})
        for name in FIELDS_OF_THEIR_OWN:
            if value := getattr(self, name):
                names[name] = value
        messages = [message.plain() for message in self.messages]
        begun = bool(self.continue_final_message)
        return [Chat(messages, self.add_generation_prompt is not False, begun, names)]


OF_OTHERS = {
    "vLLM": [
        "top_k", "min_p", "min_tokens", "repetition_penalty", "stop_token_ids", "ignore_eos",
        "allowed_token_ids", "bad_words", "include_stop_str_in_output", "truncate_prompt_tokens",
        "truncation_side", "priority", "add_special_tokens", "add_generation_prompt",
        "continue_final_message", "chat_template_kwargs", "documents",
    ],
    "SGLang": ["no_stop_trim"],
    "llama.cpp": ["n_predict"],
}  # fmt: skip
HONOURED = {
    "OpenAI": sorted(
        {*ChatRequest.model_fields, *CompletionRequest.model_fields}.difference(*OF_OTHERS.values())
    ),
    **OF_OTHERS,
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
    _check_together(asked)
    return asked


def _check_together(asked: Common) -> None:
    """ApiError 400 for fields that say different things."""
    if asked.n_predict == 0:
        raise bad_request("n_predict: must be at least 1, or -1 for what fits", "n_predict")
    if asked.n_predict and asked.max_tokens and asked.n_predict != asked.max_tokens:
        raise bad_request("n_predict: is not max_tokens; send one of them", "n_predict")
    if asked.truncate_prompt_tokens == 0:
        raise bad_request("truncate_prompt_tokens: would leave nothing", "truncate_prompt_tokens")
    if isinstance(asked, CompletionRequest):
        if asked.best_of and asked.best_of != asked.choices_each:
            raise bad_request("best_of: is not n, and no choice is better than others", "best_of")
        if asked.echo and asked.logprobs is not None:
            raise bad_request("echo: with logprobs it is not supported", "echo")
    if isinstance(asked, ChatRequest):
        if asked.top_logprobs and not asked.logprobs:
            raise bad_request("top_logprobs: needs logprobs true", "top_logprobs")
        if asked.continue_final_message and asked.add_generation_prompt:
            raise bad_request(
                "continue_final_message: no answer begins where one goes on; send "
                "add_generation_prompt false",
                "continue_final_message",
            )
    if asked.min_tokens and asked.longest is not None and asked.min_tokens > asked.longest:
        raise bad_request("min_tokens: is more than max_tokens", "min_tokens")


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
    missing = first["type"] == "missing"
    return bad_request(
        f"{name or 'the body'}: {_in_words(first['type'], first['msg'])}",
        name,
        "missing" if missing else "invalid_value",
    )


def _in_words(kind: str, message: str) -> str:
    match kind:
        case "missing":
            return "is missing"
        case "string_unicode":
            return "is not valid Unicode (a lone surrogate)"
        case "string_pattern_mismatch":
            return "has a null byte" if NO_NUL in message else "a key is no token id"
    return message.removeprefix("Value error, ")


def _is_branch(part: int | str) -> bool:
    """pydantic names the branch of a union in a field's path."""
    return isinstance(part, str) and not part.isidentifier()
