"""What the requests of a time are like: prompt and output tokens, and what prompts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

from playbooks.load.mix import PRESETS, Preset


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

    @classmethod
    def of_means(cls, prompt: float, output: float) -> PresetSizes:
        """Spread as those of chats, with these means."""
        chat, at = PRESETS["chat"], (np.arange(1000) + 0.5) / 1000
        prompts, outputs = chat.prompt.quantile(at).mean(), chat.output.quantile(at).mean()
        return cls(chat.scaled(prompt / float(prompts), output / float(outputs)))

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
