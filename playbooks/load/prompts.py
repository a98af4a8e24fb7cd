"""Prompts of a wanted length: random, so unique, so that no prefix cache can flatter.

`shared` tokens at the beginning are the same for all, when it is the cache that is measured.
"""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np

from playbooks.load.draws import Draw, generator

_COMMON = """
the time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number
night point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law
car city community name president team minute idea body information back parent face level
office door health person art war history party result change reason research girl moment air
teacher force education foot boy age policy music market sense nation plan college interest
experience effect use class control care field development role rate heart show leader light
voice mind price report decision son view relationship town road difference value building
action season director position player record paper space ground form event matter center site
project activity star table need court oil cost industry figure street image phone data picture
practice piece land product doctor wall news test movie north love support technology step baby
computer type attention film tree source organization hair window culture brother energy period
course summer plant term letter condition choice rule south floor material population call
hospital church risk fire future bank west board subject rest behavior performance top goal
second bed order author agency nature color store sound movement page race series language
response animal factor article east artist scene stock treatment size
"""
WORDS = tuple(_COMMON.split())
"""Words that byte-pair vocabularies have as one token with the space before them."""


class PromptMaker(Protocol):
    def make(self, index: int, tokens: int) -> str | list[int]:
        """The prompt of request `index`: the same for the same seed, whenever it is made."""


def fresh_seed() -> int:
    """Another one at every call: prompts that no target has seen before."""
    return secrets.randbits(32)


def derived_seed(*parts: int) -> int:
    """One seed from several: the same for the same, unlike for any others."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


class TokenPrompts:
    """Token ids, exactly as many as asked. `allowed` are the ids to draw from: no specials."""

    def __init__(self, allowed: np.ndarray, seed: int, shared: int = 0) -> None:
        self._allowed, self._seed = allowed, seed
        self._prefix = self._draw(generator(seed, Draw.PREFIX), shared)

    def make(self, index: int, tokens: int) -> list[int]:
        prefix = self._prefix[: max(tokens - 1, 0)]  # one token of its own at least
        rng = generator(self._seed, Draw.PROMPT, index)
        return prefix + self._draw(rng, tokens - len(prefix))

    def _draw(self, rng: np.random.Generator, count: int) -> list[int]:
        picked: list[int] = self._allowed[rng.integers(0, len(self._allowed), count)].tolist()
        return picked


class TextPrompts:
    """Text of about so many tokens: one common word each. A server says what it counted."""

    def __init__(self, seed: int, shared: int = 0) -> None:
        self._numbers = TokenPrompts(np.arange(len(WORDS)), seed, shared)

    def make(self, index: int, tokens: int) -> str:
        return " ".join(map(WORDS.__getitem__, self._numbers.make(index, tokens)))


def plain_ids(vocab: int, special: frozenset[int]) -> np.ndarray:
    """Ids below `vocab` without the special ones."""
    keep = np.ones(vocab, bool)
    keep[[i for i in special if i < vocab]] = False
    return np.flatnonzero(keep)
