"""Random numbers of a load: one seed, and a stream of its own for each thing that is drawn.

What request 17 looks like then depends on the seed and on 17, never on when it was sent or on
how many others were drawn before it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.random import Generator

BLOCK = 1000
"""Draws of an endless stream are stratified in blocks of so many."""
BELOW_ONE = 1 - 1e-12


class Draw(IntEnum):
    """What a stream of random numbers is for."""

    ARRIVALS = 1
    PROMPT_LENGTHS = 2
    OUTPUT_LENGTHS = 3
    PROMPT = 4
    PREFIX = 5
    THINK = 6
    USERS = 7


def generator(seed: int, draw: Draw, index: int = 0) -> Generator:
    """The stream of `draw`, or the one that belongs to request `index`."""
    return np.random.default_rng([seed, draw, index])


def stratified(rng: Generator, count: int) -> np.ndarray:
    """Uniform numbers below 1, one in each of `count` equal parts, in random order.

    Any few of them are as good as independent; all of them together have the distribution's
    own mean, spread and tail, which independent draws of a heavy tail do not.
    """
    numbers = (rng.permutation(count) + rng.random(count)) / count
    return np.minimum(numbers, BELOW_ONE)
