"""Cases of the quality check: the golden set that ships, and files that users write.

TOML, one table a case:                     JSON lines, one object a case:

    [[case]]                                {"id": "refund-1", "prompt": "…"}
    id = "refund-1"                         {"category": "chat", "messages": [
    category = "chat"                          {"role": "user", "content": "…"}]}
    prompt = "Where is my refund?"
    max_tokens = 48

A case has either `prompt`, said to the model as a user's message, or `messages`, a whole
chat. Everything else may be left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from annotated_types import Ge, Le, MinLen

from checklists.tomlfile import STRICT, TomlFile, checked
from engine.errors import ConfigError
from engine.text.tokenizer import Tokenizer

T = TypeVar("T")

MAX_TOKENS = 48
LONGEST_ANSWER = 1024
Text = Annotated[str, MinLen(1)]
CATEGORIES = (
    "chat", "extraction", "summarising", "arithmetic", "code", "classification", "multi_turn",
)  # fmt: skip
"""Files of the golden set."""


@dataclass(frozen=True)
class CaseMessage:
    __pydantic_config__ = STRICT
    role: Literal["system", "user", "assistant"]
    content: Text

    def __post_init__(self) -> None:
        if not self.content.strip():
            raise ConfigError("content: expected a text that says something")


@dataclass(frozen=True)
class CaseRow:
    """As it is written."""

    __pydantic_config__ = STRICT
    id: Text | None = None
    category: Text | None = None
    prompt: Text | None = None
    messages: tuple[CaseMessage, ...] | None = None
    max_tokens: Annotated[int, Ge(1), Le(LONGEST_ANSWER)] = MAX_TOKENS

    def __post_init__(self) -> None:
        if (self.prompt is None) == (self.messages is None):
            raise ConfigError("give either prompt or messages")
        if self.messages == ():
            raise ConfigError("messages: expected one at least")
        if self.prompt is not None and not self.prompt.strip():
            raise ConfigError("prompt: expected a text that says something")


@dataclass(frozen=True)
class CaseFile:
    __pydantic_config__ = STRICT
    case: tuple[CaseRow, ...] = ()


@dataclass(frozen=True)
class QualityCase:
    id: str
    category: str
    messages: tuple[dict[str, str], ...]
    max_tokens: int = MAX_TOKENS

    def tokens(self, tokenizer: Tokenizer) -> list[int]:
        """The prompt as the model sees it."""
        return prompt_tokens(self.messages, tokenizer)

    @property
    def prompt(self) -> str:
        """The last thing that was said."""
        return self.messages[-1]["content"]


def prompt_tokens(messages: Sequence[dict[str, str]], tokenizer: Tokenizer) -> list[int]:
    return (
        tokenizer.chat(messages) if tokenizer.has_chat else tokenizer.encode(plain_text(messages))
    )


def plain_text(messages: Sequence[dict[str, str]]) -> str:
    """For a model that knows no chats."""
    return "\n\n".join(m["content"] for m in messages) + "\n\n"


def golden() -> list[QualityCase]:
    """The set that ships, in the order of CATEGORIES."""
    folder = Path(str(files("playbooks.golden")))
    return [case for name in CATEGORIES for case in _from_toml(folder / f"{name}.toml", name)]


def read_cases(path: Path) -> list[QualityCase]:
    """Cases of a user's file. Raises ConfigError, in one line, for what is not right in it."""
    if path.suffix == ".toml":
        return _from_toml(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return _from_json_lines(path)
    raise ConfigError(f"cases {path}: expected a .toml or .jsonl file")


def every_nth(items: Sequence[T], wanted: int) -> list[T]:
    """At most `wanted` of them, evenly spread, so that every category is among them."""
    count = min(wanted, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _from_toml(path: Path, category: str = "own") -> list[QualityCase]:
    file = TomlFile(path, "cases")
    rows = file.read(CaseFile).case
    places = [f"{path}:{file.line(('case', i))}" for i in range(len(rows))]
    return _cases(path, rows, places, category)


def _from_json_lines(path: Path) -> list[QualityCase]:
    try:
        lines = path.read_text("utf-8").split("\n")  # a text may hold other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cases {path}: cannot be read ({error})") from error
    rows, places = [], []
    for number, line in enumerate(lines, 1):
        if line.strip():
            places.append(f"{path}:{number}")
            try:
                rows.append(checked(CaseRow, json.loads(line)))
            except ValueError as error:
                raise ConfigError(f"{places[-1]}: not valid JSON: {error}") from error
            except ConfigError as error:
                raise ConfigError(f"{places[-1]}: {error}") from None
    return _cases(path, rows, places)


def _cases(
    path: Path, rows: Sequence[CaseRow], places: Sequence[str], category: str = "own"
) -> list[QualityCase]:
    if not rows:
        raise ConfigError(f"cases {path}: has no cases; write every case as [[case]] or a line")
    cases: list[QualityCase] = []
    for number, (row, place) in enumerate(zip(rows, places, strict=True), 1):
        name = row.id or f"{path.stem}-{number}"
        if name in (case.id for case in cases):
            raise ConfigError(f"{place}: id {name!r} is there twice")
        said = row.messages or (CaseMessage("user", row.prompt or ""),)
        messages = tuple({"role": m.role, "content": m.content} for m in said)
        cases.append(QualityCase(name, row.category or category, messages, row.max_tokens))
    return cases
