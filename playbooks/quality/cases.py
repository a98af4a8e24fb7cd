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
from typing import Any, TypeVar

import tomli

from engine.errors import ConfigError
from engine.text.tokenizer import Tokenizer

T = TypeVar("T")

MAX_TOKENS = 48
LONGEST_ANSWER = 1024
KEYS = ("id", "category", "prompt", "messages", "max_tokens")
ROLES = ("system", "user", "assistant")
CATEGORIES = (
    "chat", "extraction", "summarising", "arithmetic", "code", "classification", "multi_turn",
)  # fmt: skip
"""Files of the golden set."""


@dataclass(frozen=True)
class Case:
    id: str
    category: str
    messages: tuple[dict[str, str], ...]
    max_tokens: int = MAX_TOKENS

    def tokens(self, tokenizer: Tokenizer) -> list[int]:
        """The prompt as the model sees it."""
        if tokenizer.has_chat:
            return tokenizer.chat(self.messages)
        return tokenizer.encode("\n\n".join(m["content"] for m in self.messages) + "\n\n")

    @property
    def prompt(self) -> str:
        """The last thing that was said."""
        return self.messages[-1]["content"]


def golden() -> list[Case]:
    """The set that ships, in the order of CATEGORIES."""
    folder = files("playbooks.golden")
    cases: list[Case] = []
    for category in CATEGORIES:
        name = f"{category}.toml"
        table = tomli.loads((folder / name).read_text("utf-8"))
        cases += _cases(table.get("case"), name, category)
    return cases


def read_cases(path: Path) -> list[Case]:
    """Cases of a user's file. Raises ConfigError, in one line, for what is not right in it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cases {path}: cannot be read ({error})") from error
    if path.suffix == ".toml":
        return _cases(_toml_rows(text, path), str(path))
    if path.suffix in (".jsonl", ".ndjson"):
        return _cases(_json_rows(text, path), str(path))
    raise ConfigError(f"cases {path}: expected a .toml or .jsonl file")


def every_nth(items: Sequence[T], wanted: int) -> list[T]:
    """At most `wanted` of them, evenly spread, so that every category is among them."""
    count = min(wanted, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _toml_rows(text: str, path: Path) -> Any:
    try:
        data = tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"cases {path}: not valid TOML: {error}") from error
    unknown = sorted(set(data) - {"case"})
    if unknown:
        raise ConfigError(f"cases {path}: unknown key {unknown[0]!r}; write every case as [[case]]")
    return data.get("case")


def _json_rows(text: str, path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise ConfigError(
                    f"cases {path}, line {number}: not valid JSON: {error}"
                ) from error
    return rows


def _cases(rows: Any, where: str, category: str = "own") -> list[Case]:
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"cases {where}: has no cases; write every case as [[case]] or a line")
    cases = [_case(row, i, where, category) for i, row in enumerate(rows, 1)]
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ConfigError(f"cases {where}: id {case.id!r} is there twice")
        seen.add(case.id)
    return cases


def _case(row: Any, number: int, where: str, category: str) -> Case:
    at = f"cases {where}, case {number}"
    if not isinstance(row, dict):
        raise ConfigError(f"{at}: expected a table, got {type(row).__name__}")
    for key in row:
        if key not in KEYS:
            raise ConfigError(f"{at}: unknown key {key!r}; known: {', '.join(KEYS)}")
    for key, default in (("id", f"{Path(where).stem}-{number}"), ("category", category)):
        if not isinstance(row.setdefault(key, default), str) or not row[key].strip():
            raise ConfigError(f"{at}: {key} must be a text, got {row[key]!r}")
    limit = row.get("max_tokens", MAX_TOKENS)
    if type(limit) is not int or not 1 <= limit <= LONGEST_ANSWER:
        raise ConfigError(f"{at}: max_tokens must be from 1 to {LONGEST_ANSWER}, got {limit!r}")
    return Case(row["id"], row["category"], _messages(row, at), limit)


def _messages(row: dict[str, Any], at: str) -> tuple[dict[str, str], ...]:
    if ("prompt" in row) == ("messages" in row):
        raise ConfigError(f"{at}: give either prompt or messages")
    if "prompt" in row:
        rows: Any = [{"role": "user", "content": row["prompt"]}]
    else:
        rows = row["messages"]
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{at}: messages must be a list of at least one")
    for message in rows:
        good = isinstance(message, dict) and set(message) == {"role", "content"}
        if not good or message["role"] not in ROLES:
            raise ConfigError(f"{at}: a message needs a role ({', '.join(ROLES)}) and a content")
        if not isinstance(message["content"], str) or not message["content"].strip():
            raise ConfigError(f"{at}: a prompt or content must be a text that says something")
    return tuple(dict(m) for m in rows)
