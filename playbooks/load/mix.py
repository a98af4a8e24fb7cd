"""Prompt and output lengths together: the presets, specs like `chat*0.2`, and trace files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from engine.errors import ConfigError
from playbooks.load.draws import Draw, generator
from playbooks.load.lengths import MOST, Empirical, Fixed, Lengths, Lognormal, Uniform
from playbooks.load.traces import Trace

SIGMA = 0.8
"""Spread of `lognormal:PROMPT,OUTPUT` where none is given."""
FORMS = (
    "chat, code, lognormal:PROMPT,OUTPUT[,SIGMA], uniform:LOW-HIGH,LOW-HIGH, "
    "fixed:PROMPT,OUTPUT, or a trace file; each may end in *FACTOR"
)
FIXED_WARNING = "fixed lengths: real lengths differ, so this proves nothing about production"


class Mix(Protocol):
    """Where the lengths of requests come from."""

    @property
    def label(self) -> str: ...

    def pairs(self, seed: int) -> Iterator[tuple[int, int]]:
        """Prompt and output tokens of request 0, 1, 2 …; the same for the same seed."""

    def scaled(self, prompt: float, output: float | None = None) -> Mix:
        """Every length times a factor, of its own for outputs if given."""


@dataclass(frozen=True)
class Preset:
    """Prompt and output lengths of one kind of traffic, drawn independently of each other."""

    prompt: Lengths
    output: Lengths
    label: str = "own"

    def pairs(self, seed: int) -> Iterator[tuple[int, int]]:
        prompts = self.prompt.stream(generator(seed, Draw.PROMPT_LENGTHS))
        outputs = self.output.stream(generator(seed, Draw.OUTPUT_LENGTHS))
        return zip(prompts, outputs, strict=True)

    def scaled(self, prompt: float, output: float | None = None) -> Preset:
        """Every length times a factor, of its own for outputs if given."""
        output = prompt if output is None else output
        if prompt == output == 1:
            return self
        factor = f"{prompt:g}" if prompt == output else f"{prompt:g}/{output:g}"
        return Preset(
            self.prompt.scaled(prompt), self.output.scaled(output), f"{self.label}*{factor}"
        )


@dataclass(frozen=True)
class TracePairs:
    """The lengths of a trace's rows, in their order: what belongs together stays together."""

    trace: Trace
    prompt_factor: float = 1.0
    output_factor: float = 1.0

    @property
    def label(self) -> str:
        return f"{self.trace.path.name}*{self.prompt_factor:g}/{self.output_factor:g}"

    def pairs(self, seed: int) -> Iterator[tuple[int, int]]:
        for row in self.trace.rows():
            yield _scale(row.prompt, self.prompt_factor), _scale(row.output, self.output_factor)

    def scaled(self, prompt: float, output: float | None = None) -> TracePairs:
        output = prompt if output is None else output
        return replace(
            self,
            prompt_factor=self.prompt_factor * prompt,
            output_factor=self.output_factor * output,
        )


def _scale(tokens: int, factor: float) -> int:
    return max(1, round(tokens * factor))


# Quantiles of the Azure LLM inference traces of 2023 (CC-BY 4.0, github.com/Azure/
# AzurePublicDataset; Patel et al., Splitwise, ISCA 2024): 19,366 chat requests and 8,819 of
# code completion.
_AT = (
    0, .001, .01, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .55,
    .6, .65, .7, .75, .8, .85, .9, .95, .98, .99, .995, .999, 1,
)  # fmt: skip
_CHAT_PROMPT = (
    2, 8, 29, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020, 1045,
    1071, 1097, 1130, 1189, 1315, 1876, 2734, 4083, 4098, 4142, 4831, 6179, 14050,
)  # fmt: skip
_CHAT_OUTPUT = (
    7, 12, 16, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129, 151,
    177, 217, 384, 395, 400, 411, 424, 451, 540, 601, 643, 954, 1000,
)  # fmt: skip
_CODE_PROMPT = (
    3, 7, 17, 75, 147, 232, 386, 578, 770, 939, 1075, 1261, 1469, 1690,
    1909, 2164, 2433, 2744, 3192, 3920, 5188, 7303, 7436, 7436, 7436, 7437, 7437,
)  # fmt: skip
_CODE_OUTPUT = (
    6, 6, 6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13, 14,
    16, 18, 20, 24, 29, 39, 55, 90, 171, 251, 359, 825, 1899,
)  # fmt: skip

PRESETS = {
    "chat": Preset(Empirical(_AT, _CHAT_PROMPT), Empirical(_AT, _CHAT_OUTPUT), "chat"),
    "code": Preset(Empirical(_AT, _CODE_PROMPT), Empirical(_AT, _CODE_OUTPUT), "code"),
}


def trace_preset(trace: Trace) -> Preset:
    """The quantiles of a trace's lengths; reads the whole file, in bounded memory."""
    prompts, outputs = np.zeros(MOST + 1, np.int64), np.zeros(MOST + 1, np.int64)
    for row in trace.rows():
        prompts[row.prompt] += 1
        outputs[row.output] += 1
    return Preset(Empirical.of_counts(prompts), Empirical.of_counts(outputs), trace.path.name)


def parse_mix(text: str, count_tokens: Callable[[str], int] | None = None) -> Preset:
    """`chat*0.2` and the like (FORMS). Raises ConfigError.

    `count_tokens` measures the texts of a trace that has texts.
    """
    body, star, factor = text.rpartition("*")
    if not star:
        body, factor = text, "1"
    scale = _number(text, factor, "a factor after *")
    name, colon, rest = body.partition(":")
    if body in PRESETS:
        return PRESETS[body].scaled(scale)
    parser = {"lognormal": _lognormal, "uniform": _uniform, "fixed": _fixed}.get(name)
    if colon and parser is not None:
        return replace(parser(text, rest), label=body).scaled(scale)
    if not Path(body).is_file():
        raise ConfigError(f"lengths: {text!r} is not known; use {FORMS}")
    return trace_preset(Trace(Path(body), count_tokens)).scaled(scale)


def _lognormal(text: str, rest: str) -> Preset:
    values = rest.split(",")
    if len(values) not in (2, 3):
        raise ConfigError(f"lengths: {text!r}: expected lognormal:PROMPT,OUTPUT[,SIGMA]")
    prompt, output = (_tokens(text, value) for value in values[:2])
    sigma = SIGMA if len(values) == 2 else _number(text, values[2], "a spread", low=0, high=4)
    return Preset(Lognormal.with_mean(prompt, sigma), Lognormal.with_mean(output, sigma))


def _uniform(text: str, rest: str) -> Preset:
    ranges = [part.split("-") for part in rest.split(",")]
    if [len(r) for r in ranges] != [2, 2]:
        raise ConfigError(f"lengths: {text!r}: expected uniform:LOW-HIGH,LOW-HIGH")
    prompt, output = ([_tokens(text, value) for value in pair] for pair in ranges)
    if prompt[0] > prompt[1] or output[0] > output[1]:
        raise ConfigError(f"lengths: {text!r}: each range goes from low to high")
    return Preset(Uniform(*prompt), Uniform(*output))


def _fixed(text: str, rest: str) -> Preset:
    values = rest.split(",")
    if len(values) != 2:
        raise ConfigError(f"lengths: {text!r}: expected fixed:PROMPT,OUTPUT")
    prompt, output = (_tokens(text, value) for value in values)
    return Preset(Fixed(prompt), Fixed(output))


def _tokens(text: str, value: str) -> float:
    return _number(text, value, "a length in tokens", low=1, high=MOST)


def _number(text: str, value: str, what: str, low: float = 1e-6, high: float = 1e6) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not low <= number <= high:
        raise ConfigError(
            f"lengths: {text!r}: expected {what} from {low:g} to {high:g}, got {value!r}"
        )
    return number
