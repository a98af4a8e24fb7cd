"""Measures a model's calibration: prompts go through the fp16 cache and its pages are read.

The contexts must be as long as those that will be served. RoPE turns every pair of channels
with the position, the slow ones over thousands of tokens, so a short text shows only a part
of their range; and a static scale that is too small clips.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.calibration import (
    OUTLIER_RATIO,
    Calibration,
    Ranges,
    outlier_ratios,
    user_file,
)
from engine.execution.columns import ColumnEnergy
from engine.execution.load import load_model
from engine.models import LoadedModel
from engine.text.tokenizer import Tokenizer
from playbooks.quality.cases import read_cases
from playbooks.quality.controls import plain_arm
from playbooks.quality.passkey import sentences
from playbooks.steps import Progress

SCHEMA = 1
LONGEST = 8192
"""Tokens of the longest built-in context: its cost grows with the square."""
SHORTEST = 512
HEAD_ROWS = 256
"""Of each text, the last tokens for which the head is multiplied by too."""
SEED = 1000
"""Other sentences than the quality check uses: it must not test on what was calibrated on."""


def run_calibration(
    config: EngineConfig,
    prompts: Path | None = None,
    out: Path | None = None,
    channels: int = 4,
    progress: Progress = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure, write the file (the user's own place by default) and return the report.

    `say` is told what is odd about the model or slow about its kernels, a line each.
    Raises ConfigError or ModelError.
    """
    if channels < 0:
        raise ConfigError(f"channels: expected at least 0, got {channels}")
    config = config.with_(compute="f32")  # of what was rounded nothing could be learned
    loaded = load_model(config)
    for note in loaded.notes:
        say(note)
    texts = prompt_tokens(loaded, prompts)
    calibration = measure(config, loaded, texts, channels, progress)
    path = out or user_file(loaded.identity)
    calibration.save(path)
    return report(calibration, path)


def measure(
    config: EngineConfig,
    loaded: LoadedModel,
    texts: list[list[int]],
    channels: int = 4,
    progress: Progress = lambda *_: None,
) -> Calibration:
    """Ranges over token sequences `texts`."""
    spec, energy = loaded.spec, ColumnEnergy()
    arm = plain_arm(config, loaded, max(map(len, texts)))
    arm.watch(energy.see)
    ranges = Ranges(spec.layers, spec.kv_heads, spec.head_dim)
    total, done = sum(map(len, texts)), 0
    for tokens in texts:
        with arm.feed(tokens, max(len(tokens) - HEAD_ROWS, 0)) as held:
            ranges.take(arm.cache.layers, held.pages, len(tokens))
        done += len(tokens)
        progress(done, total)
    return ranges.calibration(spec.name, loaded.identity, channels, energy.columns())


def prompt_tokens(loaded: LoadedModel, prompts: Path | None) -> list[list[int]]:
    """Token sequences to calibrate on: of a file, or the built-in ones."""
    tokenizer, longest = loaded.tokenizer, loaded.spec.max_positions - 1
    if prompts is None:
        return built_in(tokenizer, min(longest, LONGEST))
    if prompts.suffix != ".txt":
        found = [case.tokens(tokenizer)[:longest] for case in read_cases(prompts)]
    else:
        try:
            ids = tokenizer.encode(prompts.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"prompts {prompts}: cannot be read ({error})") from error
        found = [ids[i : i + longest] for i in range(0, len(ids), longest)]
    if not any(found):
        raise ConfigError(f"prompts {prompts}: holds no text")
    return [ids for ids in found if ids]


def built_in(tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    """Texts of 512, 1024 … `longest` tokens, each a user's message of a chat."""
    texts, length, seed = [], min(SHORTEST, longest), SEED
    while True:
        texts.append(long_text(tokenizer, length, seed))
        if length >= longest:
            return texts
        length, seed = min(2 * length, longest), seed + 1


def long_text(tokenizer: Tokenizer, length: int, seed: int) -> list[int]:
    """Pieces of every kind of text between filler sentences, cut at `length` tokens."""
    kinds, filler = pieces(), sentences(seed)
    random.Random(seed).shuffle(kinds)
    text, count = "", 0
    for i in range(length):
        part = f"{kinds[i % len(kinds)]}\n{next(filler)}\n"
        text, count = text + part, count + len(tokenizer.encode(part, False))
        if count >= length:
            break
    if tokenizer.has_chat:
        return tokenizer.chat([{"role": "user", "content": text}])[:length]
    return tokenizer.encode(text)[:length]


def pieces() -> list[str]:
    """Prose, code, tables, numbers, other languages: what serving meets."""
    text = (files("playbooks.golden") / "calibration.toml").read_text("utf-8")
    return list(tomli.loads(text)["pieces"])


def report(calibration: Calibration, path: Path) -> dict[str, Any]:
    """What was found, for people and programs."""
    ratios = outlier_ratios(calibration.k_max)
    return {
        "schema": SCHEMA,
        "kind": "calibrate",
        "model": calibration.model,
        "identity": calibration.identity,
        "calibration": calibration.digest,
        "file": str(path),
        "tokens": calibration.tokens,
        "longest_context": calibration.longest,
        "threshold": OUTLIER_RATIO,
        "channels": ratios.numel(),
        "channels_beyond": int((ratios > OUTLIER_RATIO).sum()),
        "outliers": [
            {
                "layer": o.layer,
                "head": o.head,
                "channel": o.channel,
                "ratio": o.ratio,
                "k_max": float(calibration.k_max[o.layer, o.head, o.channel]),
            }
            for o in calibration.outliers
        ],
        "layers": [
            {
                "layer": i,
                "k_max": float(calibration.k_max[i].max()),
                "v_max": float(calibration.v_max[i].max()),
                "largest_ratio": float(ratios[i].max()),
            }
            for i in range(len(ratios))
        ],
    }
