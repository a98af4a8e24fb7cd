"""Structured output: answers that a program reads, and which are right or wrong.

A cache format that hardly moves the perplexity may still cost a bracket, a digit or an argument.
Four kinds of task, each with worked examples before the question: a record as JSON, a chain of tool
calls, a long key to be copied, and a table of sums. They are no chat, so that models without one
take part, and both question and examples lie in pages that are read as the format keeps them.

An answer is valid when a program could use it: it parses and says what was asked for. Each step of
an answer is easy, so that a small model has most of them valid, and there are many steps, so that a
little more noise in each is seen. A format is worse where fewer of its answers are valid, by a sign
test over the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import tomli

from engine.config import EngineConfig
from engine.models import LoadedModel
from engine.text.tokenizer import Tokenizer
from playbooks.quality.answers import ModelAnswer, answer_all, sign_test

EACH, EACH_QUICK = 12, 5
"""Tasks of a kind."""
EXAMPLES = 3
"""Worked before the question."""
CALLS = 3
"""Of a chain."""
ROWS = 4
"""Of a table."""
DIGITS, BLOCK = 32, 4
"""Of a key, and between two of its dashes."""
LEAST_VALID = 5
"""Answers of the baseline: where all of fewer are lost, that may still be chance."""
ROOM = 4
"""Tokens that an answer may have over those of the right one."""
END = "\n\n"
"""Of an answer, in the examples and in what the model writes."""

Words = dict[str, list[str]]
Example = tuple[str, str]
"""What is asked, and the right answer."""


@dataclass(frozen=True)
class StructuredTask:
    """One question with its examples."""

    kind: str
    """json | tool_calls | copying | tables"""
    id: str
    prompt: str
    answer: str
    """The right one, in the form of the examples."""

    def tokens(self, tokenizer: Tokenizer) -> list[int]:
        """The prompt as the model sees it."""
        return tokenizer.encode(self.prompt)

    def max_tokens(self, tokenizer: Tokenizer) -> int:
        return len(tokenizer.encode(self.answer, False)) + ROOM

    def valid(self, text: str) -> bool:
        """Whether a program could use `text` in place of the right answer."""
        read = READERS[self.kind]
        try:
            return bool(read(text) == read(self.answer))
        except (ValueError, RecursionError):
            return False


def structured_tasks(quick: bool = False) -> list[StructuredTask]:
    """Always the same ones, kind by kind."""
    each = EACH_QUICK if quick else EACH
    return [_task(kind, number) for kind in MAKERS for number in range(each)]


def answer_tasks(
    config: EngineConfig,
    loaded: LoadedModel,
    asked: Sequence[StructuredTask],
    done: Callable[[], None] = lambda: None,
) -> list[ModelAnswer]:
    """What the model writes, up to the end of each answer."""
    prompts = [task.tokens(loaded.tokenizer) for task in asked]
    most = [task.max_tokens(loaded.tokenizer) for task in asked]
    return answer_all(config, loaded, prompts, most, done=done, stop=(END,))


def form(
    asked: Sequence[StructuredTask], base: Sequence[ModelAnswer], other: Sequence[ModelAnswer]
) -> dict[str, float | None]:
    """How many more answers are invalid; and the chance of so many more if neither side were
    worse, None where the baseline has so few valid ones that no loss could be told."""
    pairs = [
        (task.valid(a.text), task.valid(b.text))
        for task, a, b in zip(asked, base, other, strict=True)
    ]
    lost, won = (sum(a > b for a, b in pairs), sum(b > a for a, b in pairs))
    able = sum(before for before, _ in pairs) >= LEAST_VALID
    return {"invalid_up": lost - won, "structure_p": sign_test(lost, won) if able else None}


def _task(kind: str, number: int) -> StructuredTask:
    rng = np.random.default_rng((list(MAKERS).index(kind), number))
    drawn: dict[str, str] = {}
    while len(drawn) <= EXAMPLES:  # no example is the question
        drawn |= [MAKERS[kind](rng, _words())]
    *examples, (question, answer) = drawn.items()
    worked = "".join(f"Q: {said}\nA: {right}{END}" for said, right in examples)
    return StructuredTask(kind, f"{kind}-{number + 1}", f"{worked}Q: {question}\nA:", answer)


# --- the kinds --------------------------------------------------------------------------


def _order(rng: np.random.Generator, words: Words) -> Example:
    """A record of six fields in two objects."""
    name, city, thing = (_pick(rng, words[key]) for key in ("names", "cities", "things"))
    count, price, number = (int(rng.integers(*span)) for span in ((2, 90), (100, 999), (1e5, 1e6)))
    order = {"item": thing, "count": count, "price": price}
    record = {"number": number, "customer": {"name": name, "city": city}, "order": order}
    said = f"number {number}, name {name}, city {city}, item {thing}, count {count}, price {price}"
    return said, json.dumps(record)


def _chain(rng: np.random.Generator, words: Words) -> Example:
    """Calls of different tools, one a line."""
    said, calls = [], []
    for at in sorted(rng.choice(len(TOOLS), CALLS, replace=False)):
        tool, argument, value, number = TOOLS[at]
        arguments = {argument: _pick(rng, words[value]), number: int(rng.integers(2, 90))}
        said.append(f"{tool} {' '.join(f'{name}={what}' for name, what in arguments.items())}")
        calls.append(json.dumps({"tool": tool, "arguments": arguments}))
    return "; ".join(said), "\n".join(calls)


def _key(rng: np.random.Generator, words: Words) -> Example:
    """A long key, and some text after it."""
    name, city, thing = (_pick(rng, words[key]) for key in ("names", "cities", "things"))
    digits = "".join("0123456789abcdef"[i] for i in rng.integers(0, 16, DIGITS))
    key = "-".join(digits[i : i + BLOCK] for i in range(0, DIGITS, BLOCK))
    said = f"The key is {key}. {name} in {city} has asked for it, and for {thing}."
    return f"{said} Write the key.", key


def _sums(rng: np.random.Generator, words: Words) -> Example:
    """A table: a column that counts, one that stays, and their sum."""
    first, add = int(rng.integers(1, 20)), (1, 2, 10)[int(rng.integers(3))]
    sums = {f"{n} + {add}": n + add for n in range(first, first + ROWS)}
    lines = [f"{row}) {left} = {right}" for row, (left, right) in enumerate(sums.items(), 1)]
    return ", ".join(sums), "\n".join(lines)


TOOLS = (
    ("forecast", "city", "cities", "days"),
    ("remind", "name", "names", "hours"),
    ("reserve", "item", "things", "count"),
    ("travel", "to", "cities", "seats"),
)
"""With their arguments: a word, where it is from, and a number."""
MAKERS: dict[str, Callable[[np.random.Generator, Words], Example]] = {
    "json": _order,
    "tool_calls": _chain,
    "copying": _key,
    "tables": _sums,
}


# --- reading an answer ------------------------------------------------------------------


def without_fence(text: str) -> str:
    """What stands between the fences of a code block, or all of it."""
    return text.strip().removeprefix("```json").removeprefix("```").partition("```")[0].strip()


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


READERS: dict[str, Callable[[str], Any]] = {
    "json": lambda text: json.loads(without_fence(text)),
    "tool_calls": lambda text: [json.loads(line) for line in _lines(text)],
    "copying": str.strip,
    "tables": lambda text: ["".join(line.split()) for line in _lines(text)],
}
"""What an answer says; ValueError where it cannot be read."""


def _pick(rng: np.random.Generator, items: Sequence[str]) -> str:
    return items[int(rng.integers(len(items)))]


@cache
def _words() -> Words:
    text = (files("playbooks.golden") / "structured.toml").read_text("utf-8")
    return dict(tomli.loads(text))
