"""What the requests of a time are like: prompt and output tokens, and what prompts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from numpy.random import Generator

from playbooks.load.mix import Preset


class Size(NamedTuple):
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] | None = None


class Sizes(Protocol):
    @property
    def label(self) -> str: ...

    def draw(self, rng: Generator, count: int) -> list[Size]: ...


@dataclass(frozen=True)
class PresetSizes:
    """Prompt and output lengths, independent of each other; nothing is shared."""

    mix: Preset

    @property
    def label(self) -> str:
        return self.mix.label

    def draw(self, rng: Generator, count: int) -> list[Size]:
        prompts, outputs = self.mix.prompt.draw(rng, count), self.mix.output.draw(rng, count)
        return list(map(Size, prompts, outputs))


@dataclass(frozen=True)
class SampledSizes:
    """Rows that were seen, in the order in which they were, from anywhere in it."""

    rows: tuple[Size, ...]
    label: str

    def draw(self, rng: Generator, count: int) -> list[Size]:
        begin, rows = int(rng.integers(len(self.rows))), self.rows
        first = rows[begin : begin + count]
        rounds, rest = divmod(count - len(first), len(rows))
        return [*first, *rows * rounds, *rows[:rest]]
