"""Chat templates: messages to the text that a model was tuned on.

A model file brings its template as Jinja source, so it runs in a sandbox without access to
anything but the messages. Rendering depends on the messages alone: there is no clock in it
(templates that would print today's date fall back to their fixed one), so the same chat
always has the same tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import ModelError, RequestError

Messages = Sequence[Mapping[str, Any]]
"""Each {"role": …, "content": …}, the oldest first."""


class ChatTemplate:
    """Raises ModelError when the source is not valid Jinja."""

    def __init__(self, source: str, bos: str = "", eos: str = "", where: str = "model") -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "bos_token": bos, "eos_token": eos}
        self.source = source
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelError(f"{where}: the chat template is not valid Jinja ({error})") from error

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """RequestError when the template refuses the messages."""
        check(messages)
        try:
            return self._template.render(
                messages=list(messages),
                add_generation_prompt=add_generation_prompt,
                tools=None,
                documents=None,
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            reason = " ".join(str(error).split())
            raise RequestError(f"messages: the chat template refuses them ({reason})") from error


def check(messages: object) -> None:
    """RequestError unless `messages` is a list of roles with texts."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages: expected a list with at least one message")
    for number, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message, Mapping) or not isinstance(message.get(key), str):
                raise RequestError(f"messages[{number}]: expected a text {key!r}")


def _refuse(reason: object) -> NoReturn:
    raise TemplateError(str(reason))


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
