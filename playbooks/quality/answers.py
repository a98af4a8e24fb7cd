"""What the model writes, greedily: answers of whole engines, and where two of them part.

A rounding difference may flip a choice between two equally good tokens, after which the
answers differ for good. So the first divergence means little by itself: it is held against a
floor, the same comparison between fp16 served alone and fp16 served in a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from engine.config import EngineConfig
from engine.core import Engine, completion
from engine.errors import EngineError
from engine.models import LoadedModel
from engine.request import FinishReason, SamplingParams
from playbooks.quality.arm import CHUNK, sized
from playbooks.quality.cases import QualityCase

BATCH = 16
LOOP_LONGEST = 12
"""Words of the longest phrase that is looked for."""
LOOP_TIMES = 4
"""Said so often in a row, a phrase is a loop."""
EARLY = 0.5
"""An answer that ends by itself before this share of the other's length ends early."""
LEAST_ANSWERS = 10
"""With fewer, one answer that happens to be long decides about the length."""
TURN_TOKENS = 24
"""Of each answer in the two-turn check."""
TURN_ROOM = 128
"""Tokens that its second turn adds at most."""
REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class ModelAnswer:
    token_ids: tuple[int, ...]
    text: str
    stopped: bool
    """It ended by itself, not for its length."""


def answer_all(
    config: EngineConfig,
    loaded: LoadedModel,
    prompts: Sequence[list[int]],
    limits: Sequence[int],
    batch: int = BATCH,
    done: Callable[[], None] = lambda: None,
    stop: tuple[str, ...] = (),
) -> list[ModelAnswer]:
    """Serve all prompts greedily, up to `batch` at once. EngineError when one fails."""
    if not prompts:
        return []
    longest = max(len(p) + n for p, n in zip(prompts, limits, strict=True))
    answers = []
    with Engine(sized(config, loaded, longest, batch, CHUNK), loaded) as engine:
        streams = [
            engine.submit(ids, SamplingParams(limit, stop=stop), source="quality")
            for ids, limit in zip(prompts, limits, strict=True)
        ]
        for stream in streams:
            result = completion(stream)
            if result.error is not None or not result.token_ids:
                raise EngineError(f"quality: a prompt was not answered: {result.error}")
            stopped = result.finish_reason is FinishReason.STOP
            answers.append(ModelAnswer(result.token_ids, result.text, stopped))
            done()
    return answers


def divergence(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first token that differs, None where the answers are the same."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def kept(base: Sequence[ModelAnswer], other: Sequence[ModelAnswer]) -> float | None:
    """Mean share of the baseline's answer that comes before the first difference."""
    shares = []
    for a, b in zip(base, other, strict=True):
        at = divergence(a.token_ids, b.token_ids)
        shares.append(1.0 if at is None else at / len(a.token_ids))
    return float(np.mean(shares)) if shares else None


def form(base: Sequence[ModelAnswer], other: Sequence[ModelAnswer]) -> dict[str, float | None]:
    """Changes that a reader would notice without knowing the right answer.

    Greedy answers part at near-ties, and then one may happen to loop or to be short where the
    other is not, in either direction. `…_p` is the chance of so many more in one direction
    when both are equally likely: a one-sided sign test.
    """
    pairs = list(zip(base, other, strict=True))
    before, after = (sum(len(a.token_ids) for a in side) for side in (base, other))
    looping = _changes([(loops(a.text), loops(b.text)) for a, b in pairs])
    early = _changes([(ends_early(a, b), ends_early(b, a)) for a, b in pairs])
    return {
        "length_change": after / before - 1 if len(pairs) >= LEAST_ANSWERS else None,
        "repetition_up": looping[0] - looping[1],
        "repetition_p": sign_test(*looping),
        "early_end_up": early[0] - early[1],
        "early_end_p": sign_test(*early),
        "replacement_up": sum(broken(b) - broken(a) for a, b in pairs),
    }


def _changes(pairs: Sequence[tuple[bool, bool]]) -> tuple[int, int]:
    """How many are true only of the candidate, and how many only of the baseline."""
    return sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)


def sign_test(more: int, less: int) -> float:
    if more + less == 0:
        return 1.0
    return float(binomtest(more, more + less, alternative="greater").pvalue)


def loops(text: str) -> bool:
    """Its end says the same phrase over and over."""
    words = text.split()
    for size in range(1, LOOP_LONGEST + 1):
        tail = words[-size * LOOP_TIMES :]
        if len(tail) == size * LOOP_TIMES and tail == tail[:size] * LOOP_TIMES:
            return True
    return False


def broken(answer: ModelAnswer) -> bool:
    """Has bytes that are no text; a last character cut off by the length limit does not count."""
    text = answer.text if answer.stopped else answer.text.rstrip(REPLACEMENT)
    return REPLACEMENT in text


def ends_early(answer: ModelAnswer, other: ModelAnswer) -> bool:
    return answer.stopped and len(answer.token_ids) < EARLY * len(other.token_ids)


def second_turn(
    config: EngineConfig, loaded: LoadedModel, cases: Sequence[QualityCase]
) -> bool | None:
    """A chat's second turn, on an engine that remembers the first: does it differ from a fresh one?

    None where nothing was reused, so that there is nothing to compare.
    """
    tokenizer = loaded.tokenizer
    chats = [case.tokens(tokenizer) for case in cases if tokenizer.has_chat]
    if not chats:
        return None
    params = SamplingParams(TURN_TOKENS)
    room = sized(config, loaded, max(map(len, chats)) + TURN_ROOM, 1, CHUNK)
    turns, warm = [], []
    with Engine(room.with_(prefix_cache=True), loaded) as engine:
        for case, ids in zip(cases, chats, strict=True):
            first = engine.generate([ids], params)[0]
            turns.append(tokenizer.chat([*case.messages, *follow_up(first.text)]))
            warm.append(engine.generate([turns[-1]], params)[0].token_ids)
    if engine.pool.index is None or not engine.pool.index.hit_tokens:
        return None
    with Engine(room, loaded) as engine:
        fresh = [engine.generate([ids], params)[0].token_ids for ids in turns]
    return warm != fresh


def follow_up(answer: str) -> list[dict[str, str]]:
    return [
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Say that again in other words."},  # not shown
    ]
