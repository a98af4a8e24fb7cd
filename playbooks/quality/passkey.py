"""Long contexts: filler text of any length, and the passkey grid over depth and length.

A number is hidden in unrelated text and asked for at the end. What a cache format loses of
keys that lie far back shows here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import tomli

LENGTHS = (256, 512, 1024, 1536)
"""Tokens of the whole prompt, about."""
DEPTHS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Where the passkey stands: 0 is the beginning."""
QUICK_LENGTHS = (256, 512)
QUICK_DEPTHS = (0.05, 0.5, 0.95)
ANSWER_TOKENS = 16
TASK = "Read the notes below. One of them tells a secret code; you will be asked for it."
NEEDLE = "Remember this: the secret code is {key}."
QUESTION = "What is the secret code? Answer with the number only."

Count = Callable[[str], int]
"""Tokens of a text."""


@dataclass(frozen=True)
class Cell:
    """One square of the grid."""

    length: int
    depth: float
    key: str
    prompt: str

    def found_in(self, answer: str) -> bool:
        return self.key in answer


def grid(count: Count, longest: int, quick: bool = False) -> list[Cell]:
    """Every cell whose prompt fits into about `longest` tokens, each with a text of its own."""
    lengths, depths = (QUICK_LENGTHS, QUICK_DEPTHS) if quick else (LENGTHS, DEPTHS)
    places = [(n, d) for n in lengths if n <= longest for d in depths]
    return [cell(count, length, depth, seed) for seed, (length, depth) in enumerate(places)]


def cell(count: Count, length: int, depth: float, seed: int) -> Cell:
    key = str(np.random.default_rng(seed + 1).integers(10_000, 100_000))
    needle = NEEDLE.format(key=key)
    room = length - count("\n".join((TASK, needle, QUESTION)))
    lines = filler(count, max(room, 0), seed)
    lines.insert(round(depth * len(lines)), needle)
    return Cell(length, depth, key, "\n\n".join((TASK, " ".join(lines), QUESTION)))


def filler(count: Count, tokens: int, seed: int) -> list[str]:
    """Sentences of `tokens` tokens together, a little less."""
    lines: list[str] = []
    total = 0
    for line in sentences(seed):
        total += count(" " + line)
        if total > tokens:
            return lines
        lines.append(line)
    raise AssertionError("sentences never end")


def sentences(seed: int) -> Iterator[str]:
    """Without end; the same seed gives the same ones."""
    parts, rng = _parts(), np.random.default_rng(seed)
    while True:
        words = {name: _draw(rng, parts[name]) for name in ("who", "what", "where", "when")}
        line = _draw(rng, parts["sentences"]).format(number=rng.integers(2, 1000), **words)
        yield line[0].upper() + line[1:]


def _draw(rng: np.random.Generator, items: list[str]) -> str:
    return items[int(rng.integers(len(items)))]


@cache
def _parts() -> dict[str, Any]:
    return tomli.loads((files("playbooks.golden") / "filler.toml").read_text("utf-8"))
