"""Messages as clients send them, and that the model's chat template leaves nothing of them out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from console.server.errors import ApiError, bad_request
from console.server.jsonbody import parse
from console.server.values import Nested, Part, Text
from engine.errors import RequestError
from engine.text.chat import OPEN, ChatTemplate
from engine.text.completion import Chat, Messages

BARE = ("role", "content", "tool_call_id")
"""A call's id says which answer is whose; templates that number nothing need none."""


class TextPart(Part):
    type: Literal["text"]
    text: Text


class Message(Part):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: Text | None = None
    tool_calls: Annotated[list[Nested], Field(fail_fast=True)] | None = None
    tool_call_id: Text | None = None
    function_call: Nested | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    refusal: Text | None = None

    @model_validator(mode="after")
    def _thinks_once(self) -> Message:
        """Two servers' names of one thing."""
        if self.reasoning and (self.reasoning_content or self.reasoning) != self.reasoning:
            raise ValueError("reasoning and reasoning_content differ; send one")
        return self

    def plain(self) -> dict[str, Any]:
        """As the chat template takes it. `developer` is what newer clients call `system`."""
        role = "system" if self.role == "developer" else self.role
        content = self.content or ""
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        more = {name: value for name in MORE_OF_A_MESSAGE if (value := getattr(self, name))}
        if thought := more.pop("reasoning", None):
            more["reasoning_content"] = thought
        return {"role": role, "content": content, **more}


MORE_OF_A_MESSAGE = tuple(name for name in Message.model_fields if name not in ("role", "content"))


def _with_parsed_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Templates write a call's arguments as JSON; the API has them as text already."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = parse(function["arguments"].encode())
    except ApiError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def faithful(chat: Chat, template: ChatTemplate) -> Chat:
    """The chat in the form in which the template leaves nothing out. ApiError names what it does
    leave out; RequestError when it refuses the messages."""
    if (unread := _unread(chat, template)) is not None:
        raise bad_request(
            f"{unread}: this model's chat template does not read it; leave it out",
            unread, "unsupported",
        )  # fmt: skip
    chat = _with_thoughts(chat, template.thoughts or "reasoning_content")
    if not any(message.get("tool_calls") for message in chat.messages):
        if (param := _lost(chat, template)) is not None:
            raise _left_out(param)
        return chat
    refusals: list[ApiError | RequestError] = []
    for form in _forms_of_calls(chat):
        try:
            if (param := _lost(form, template)) is None:
                template.render(form)
                return form
            refusals.append(_left_out(param))
        except RequestError as error:
            refusals.append(error)
    raise refusals[0]


def _left_out(param: str) -> ApiError:
    return bad_request(
        f"{param}: this model's chat template leaves it out, so the model would not "
        "know of it; put it into the content, or leave it out",
        param, "unsupported",
    )  # fmt: skip


def _with_thoughts(chat: Chat, name: str) -> Chat:
    """Under the template's name of them."""
    messages = [
        {name if key == "reasoning_content" else key: value for key, value in m.items()}
        for m in chat.messages
    ]
    return replace(chat, messages=messages)


def _forms_of_calls(chat: Chat) -> Iterator[Chat]:
    """Most templates write a call's arguments as JSON themselves, some take the API's text as it
    is; some ask whether a call's content is none, others cannot take that."""
    for without, parsed in itertools.product((False, True), (True, False)):
        messages = []
        for message in map(dict, chat.messages):
            if calls := message.get("tool_calls"):
                message["tool_calls"] = (
                    list(map(_with_parsed_arguments, calls)) if parsed else calls
                )
                message["content"] = message["content"] or (None if without else "")
            messages.append(message)
        yield replace(chat, messages=messages)


def _unread(chat: Chat, template: ChatTemplate) -> str | None:
    """The first name that the template never asks for."""
    unread = next((name for name in chat.names if name not in template.names), None)
    if unread is None:
        return None
    return unread if unread in FIELDS_OF_THEIR_OWN else f"chat_template_kwargs.{unread}"[:100]


FIELDS_OF_THEIR_OWN = ("documents", "reasoning_effort")
"""Names for the template that a request has beside `chat_template_kwargs`."""


def _lost(chat: Chat, template: ChatTemplate) -> str | None:
    """ "messages.1.tool_calls": the first field that makes no difference to what the template makes
    of the messages; None when all of them do."""
    messages = chat.messages
    if {message["role"] for message in messages} - {"user", "assistant"}:
        for number in _unsaid(chat, template):
            return f"messages.{number}.content"
    first: dict[tuple[str, str], int] = {}
    for number, message in enumerate(messages):
        for name in message:
            if name not in BARE:
                first.setdefault((message["role"], name), number)
    # It may leave those of earlier turns out: its own choice.
    first = {key: number for key, number in first.items() if key[1] != template.thoughts}
    whole = template.render(chat) if first else ""
    for (role, name), number in first.items():
        without = [
            {key: value for key, value in m.items() if m["role"] != role or key != name}
            for m in messages
        ]
        try:
            if template.render(replace(chat, messages=without)) == whole:
                return f"messages.{number}.{name}"
        except RequestError:
            continue  # the template asks for it
    return None


def _unsaid(chat: Chat, template: ChatTemplate) -> Iterator[int]:
    """Messages whose content the template leaves out: each has a mark at its end."""
    marks = {i: f"{OPEN}{i}{OPEN}" for i, m in enumerate(chat.messages) if m["content"]}
    marked: Messages = [
        {**m, "content": m["content"] + marks[i]} if i in marks else m
        for i, m in enumerate(chat.messages)
    ]
    try:
        text = template.render(replace(chat, messages=marked))
    except RequestError:
        return
    yield from (i for i, mark in marks.items() if mark not in text)
