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
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NoReturn

from jinja2 import Environment, Template, TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import RequestError
from engine.text.completion import Chat, Messages, as_chat

GUARD = "\ufdd0"
"""A code point that Unicode keeps out of text: put behind each character of a special token's
spelling, it passes through the chat template and breaks the match. It is taken out before
encoding, and so is one that a user sends."""
OPEN = "\ufdd1"
"""Another: where a message that is to be continued ends."""

THOUGHTS = ("reasoning_content", "thinking", "reasoning")
"""What templates call them."""


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
        self.names: frozenset[str] = frozenset()
        """Those that the source reads and nobody gives it but a request."""
        self.thoughts: str | None = None
        """Its name for what an assistant thought; None if it leaves that out everywhere."""
        self._in_parts = False
        """Contents are lists of parts to it, not texts."""
        self.works = False
        """One plain message renders, or the template itself refuses it for another."""
        self.problem: str | None = None
        """What it wants that is not offered, or why it does not work; None where all is well."""
        environment = _environment(now or datetime.now())
        try:
            self._template = environment.from_string(source)
            tree = environment.parse(source)
            missing = _missing(environment, tree)
            self.names = frozenset(meta.find_undeclared_variables(tree) - self._own_names())
            self._in_parts = self._takes_parts()
            spelt = THOUGHTS[0] if THOUGHTS[0] in source else None  # read in some chats, it may be
            self.thoughts = next(filter(self._reads_thoughts, THOUGHTS), spelt)
            self.works = True
            if missing:
                raise TemplateError(f"{', '.join(missing)}: not offered here")
        except Exception as error:  # a template is a program of somebody else's
            self.problem = f"{where}: the chat template does not work ({_said(error)})"

    def render(self, chat: Chat | Messages) -> str:
        """RequestError when the template refuses the messages, or does not work at all."""
        chat = as_chat(chat)
        if self._template is None:
            raise RequestError(f"messages: {self.problem}; send a prompt instead")
        try:
            text = self._render(chat, self._in_parts)
        except Refusal as error:
            raise RequestError(
                f"messages: the chat template refuses them ({_said(error)})"
            ) from error
        except Exception as error:  # as above
            raise RequestError(
                f"messages: the chat template of {self._where} does not work on them "
                f"({_said(error)})"
            ) from error
        return _cut(text) if chat.continue_final else text

    def _render(self, chat: Chat, in_parts: bool) -> str:
        assert self._template is not None
        messages = [dict(message) for message in chat.messages]
        if chat.continue_final:  # the blank shows whether the template strips contents
            messages[-1]["content"] = f"{messages[-1]['content'] or ''}{OPEN} "
        for message in messages if in_parts else ():
            if isinstance(text := message["content"], str):
                message["content"] = [{"type": "text", "text": text}]
        given = self._tokens | {"documents": None} | dict(chat.names)
        return self._template.render(
            given,
            messages=messages,
            add_generation_prompt=chat.add_generation_prompt and not chat.continue_final,
            tools=None,
        )

    def _own_names(self) -> set[str]:
        return {"messages", "add_generation_prompt", "tools", *self._tokens}

    def _takes_parts(self) -> bool:
        """A text gets lost, and the same as a part does not. Raises what rendering raises."""
        hello = Chat([{"role": "user", "content": "Hello"}])
        try:
            if "Hello" in self._render(hello, in_parts=False):
                return False
        except Refusal:
            return False
        except Exception:
            if "Hello" in self._render(hello, in_parts=True):
                return True
            raise
        try:
            return "Hello" in self._render(hello, in_parts=True)
        except Exception:
            return False

    def _reads_thoughts(self, name: str) -> bool:
        said = {"role": "assistant", "content": "Yes.", name: OPEN}
        chat = Chat([{"role": "user", "content": "Hello"}, said], add_generation_prompt=False)
        try:
            return OPEN in self._render(chat, self._in_parts)
        except Exception:
            return False


def _cut(text: str) -> str:
    """What stands before OPEN; without blanks at its end where the template strips contents."""
    head, mark, tail = text.rpartition(OPEN)
    if not mark:
        raise RequestError(
            "messages: the chat template leaves the last one out, so it cannot be continued"
        )
    return head if tail.startswith(" ") else head.rstrip()


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


def _missing(environment: Environment, tree: nodes.Template) -> list[str]:
    """Functions, filters and tests that the source uses, in whatever branch, and nobody offers.

    A function whose presence the template asks for itself (`is defined`) is not missing.
    """
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
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return "".join(map(_ascii, text)) if ensure_ascii else text


def _ascii(char: str) -> str:
    """The marks are none of the user's letters, and stay what they are."""
    return char if char.isascii() or char in GUARD + OPEN else json.dumps(char)[1:-1]


def _said(error: Exception) -> str:
    """In one line."""
    return " ".join(str(error).split()) or type(error).__name__
