"""Chat templates: messages to the text that a model was tuned on.

A model file brings its template as Jinja source, so it runs in a sandbox without access to
anything but the messages. What a template may use is what the reference renderer of such files
offers: loop controls, `generation` blocks, `tojson` with its arguments, `raise_exception`,
`strftime_now`. A template that wants more is named at load, and only chats are refused.

Rendering depends on the messages alone: the clock that a template may ask stands still at the time
it was loaded, so within one run the same chat always has the same tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import RequestError

Messages = Sequence[Mapping[str, Any]]
"""Each {"role": …, "content": …}, the oldest first."""


class Refusal(TemplateError):
    """The template itself says no, with `raise_exception`."""


class ChatTemplate:
    """`tokens`: texts of special tokens by the names that templates use, as `bos_token`."""

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, object] | None = None,
        where: str = "model",
        now: datetime | None = None,
    ) -> None:
        self.source, self._where = source, where
        self._tokens = {"bos_token": "", "eos_token": ""} | dict(tokens or {})
        self._template: Template | None = None
        self.works = False
        """One plain message renders, or the template itself refuses it for another."""
        self.problem: str | None = None
        """What it wants that is not offered, or why it does not work; None where all is well."""
        environment = _environment(now or datetime.now())
        try:
            self._template = environment.from_string(source)
            missing = _missing(environment, source)
            with suppress(Refusal):
                self._render([{"role": "user", "content": "Hello"}], True)
            self.works = True
            if missing:
                raise TemplateError(f"{', '.join(missing)}: not offered here")
        except Exception as error:  # a template is a program of somebody else's
            self.problem = f"{where}: the chat template does not work ({_said(error)})"

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """RequestError when the template refuses the messages, or does not work at all."""
        check(messages)
        if self._template is None:
            raise RequestError(f"messages: {self.problem}; send a prompt instead")
        try:
            return self._render(list(messages), add_generation_prompt)
        except Refusal as error:
            raise RequestError(
                f"messages: the chat template refuses them ({_said(error)})"
            ) from error
        except Exception as error:  # as above
            raise RequestError(
                f"messages: the chat template of {self._where} does not work on them "
                f"({_said(error)})"
            ) from error

    def _render(self, messages: list[Mapping[str, Any]], add_generation_prompt: bool) -> str:
        assert self._template is not None
        return self._template.render(
            self._tokens,
            messages=messages,
            add_generation_prompt=add_generation_prompt,
            tools=None,
            documents=None,
        )


def check(messages: object) -> None:
    """RequestError unless `messages` is a list of roles with texts."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages: expected a list with at least one message")
    for number, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message, Mapping) or not isinstance(message.get(key), str):
                raise RequestError(f"messages[{number}]: expected a text {key!r}")


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}` marks what an assistant wrote, for training on it.

    Here its content is rendered as it is, in a scope of its own as the reference has it.
    """

    tags = {"generation"}  # noqa: RUF012  (as the library declares it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


def _environment(now: datetime) -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": now.strftime}
    return environment


def _missing(environment: Environment, source: str) -> list[str]:
    """Functions, filters and tests that the source uses, in whatever branch, and nobody offers.

    A function whose presence the template asks for itself (`is defined`) is not missing.
    """
    tree = environment.parse(source)
    unknown = meta.find_undeclared_variables(tree)
    asked = {
        test.node.name
        for test in tree.find_all(nodes.Test)
        if test.name in ("defined", "undefined") and isinstance(test.node, nodes.Name)
    }
    called = [
        call.node.name for call in tree.find_all(nodes.Call) if isinstance(call.node, nodes.Name)
    ]
    functions = [f"function {n}" for n in called if n in unknown and n not in asked]
    filters = [f.name for f in tree.find_all(nodes.Filter) if f.name not in environment.filters]
    tests = [t.name for t in tree.find_all(nodes.Test) if t.name not in environment.tests]
    named = [*functions, *(f"filter {n}" for n in filters), *(f"test {n}" for n in tests)]
    return list(dict.fromkeys(named))


def _refuse(reason: object) -> NoReturn:
    raise Refusal(str(reason))


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter would escape what HTML minds."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _said(error: Exception) -> str:
    """In one line."""
    return " ".join(str(error).split()) or type(error).__name__
