"""Requests for experiments: few of them, and yet with exactly the lengths that were asked for.

Independent draws of a heavy tail differ so much between two small samples that the mean of one
is half that of the other. Here the sample is the distribution itself: its quantiles in random
order, scaled until their mean is the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from engine.errors import ConfigError
from playbooks.load.draws import Draw, generator
from playbooks.load.lengths import Lognormal
from playbooks.load.mix import Mix, Preset, parse_mix


@dataclass(frozen=True)
class EvenMix:
    """`count` lognormal prompts and outputs, none longer than `most_prompt` and `most_output`.

    Their means are `prompt_mean` and `output_mean` to within a token, whatever the seed; the
    seed says in which order they come and who goes with whom.
    """

    count: int
    prompt_mean: float
    output_mean: float
    prompt_sigma: float
    output_sigma: float
    most_prompt: int
    most_output: int

    def __post_init__(self) -> None:
        for what in ("prompt", "output"):
            mean, most = getattr(self, f"{what}_mean"), getattr(self, f"most_{what}")
            if not 1 <= mean <= most:
                raise ConfigError(
                    f"{what}_mean: expected 1 to {most} tokens, the longest allowed, got {mean:g}"
                )
            if not 0 <= getattr(self, f"{what}_sigma") <= 4:
                raise ConfigError(
                    f"{what}_sigma: expected 0 to 4, got {getattr(self, f'{what}_sigma'):g}"
                )

    @property
    def label(self) -> str:
        return (
            f"lognormal, prompts {self.prompt_mean:g} (σ {self.prompt_sigma:g}, at most "
            f"{self.most_prompt}), outputs {self.output_mean:g} (σ {self.output_sigma:g}, at most "
            f"{self.most_output}) tokens"
        )

    def pairs(self, seed: int) -> Iterator[tuple[int, int]]:
        """Prompt and output tokens, round after round of `count`."""
        prompts = _even(self.count, self.prompt_mean, self.prompt_sigma, self.most_prompt)
        outputs = _even(self.count, self.output_mean, self.output_sigma, self.most_output)
        order = generator(seed, Draw.PROMPT_LENGTHS), generator(seed, Draw.OUTPUT_LENGTHS)
        while True:
            yield from zip(
                order[0].permutation(prompts).tolist(),
                order[1].permutation(outputs).tolist(),
                strict=True,
            )

    def scaled(self, prompt: float, output: float | None = None) -> EvenMix:
        output = prompt if output is None else output
        return EvenMix(
            self.count,
            self.prompt_mean * prompt,
            self.output_mean * output,
            self.prompt_sigma,
            self.output_sigma,
            round(self.most_prompt * prompt),
            round(self.most_output * output),
        )


@dataclass(frozen=True)
class EvenPreset:
    """A preset's lengths in rounds of `count`, each of which has the whole distribution.

    Runs of different length then have the same work, and differ in nothing but their length.
    """

    preset: Preset
    count: int

    @property
    def label(self) -> str:
        return self.preset.label

    def pairs(self, seed: int) -> Iterator[tuple[int, int]]:
        """Prompt and output tokens, round after round."""
        prompts, outputs = self.preset.prompt, self.preset.output
        order = generator(seed, Draw.PROMPT_LENGTHS), generator(seed, Draw.OUTPUT_LENGTHS)
        while True:
            yield from zip(
                prompts.spread(order[0], self.count),
                outputs.spread(order[1], self.count),
                strict=True,
            )

    def scaled(self, prompt: float, output: float | None = None) -> EvenPreset:
        return EvenPreset(self.preset.scaled(prompt, output), self.count)


def even_mix(lengths: str, count: int) -> Mix:
    """As `parse_mix`, and of a preset every `count` requests in a row have the same lengths."""
    mix = parse_mix(lengths)
    return EvenPreset(mix, count) if isinstance(mix, Preset) else mix


def _even(count: int, mean: float, sigma: float, most: int) -> np.ndarray:
    """int64 [count]: quantiles of a lognormal, cut at `most`, of this mean after the cut."""
    at = (np.arange(count) + 0.5) / count
    shape = Lognormal.with_mean(mean, sigma).quantile(at)

    def excess(factor: float) -> float:
        return float(np.clip(shape * factor, 1, most).mean() - mean)

    low, high = 1e-3, 1e3
    if excess(low) > 0 or excess(high) < 0:  # nearly all at one of the ends
        return np.full(count, round(mean))
    factor = brentq(excess, low, high)
    return np.clip(shape * factor, 1, most).round().astype(np.int64)
