"""How long outputs will be: what those of each class of requests came to lately. No torch.

A class is who sent it and the order of magnitude of its prompt; of a request nothing is kept but
the length of its output. A class that has ended few requests leans on its sender's others, those
on everybody's, and everybody's on a broad guess: there is always an answer, and it sharpens.

Whether the answers hold is measured: each request is given an interval when it starts, and the
share of outputs that end inside it, the coverage, must not fall far below what was promised.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from engine.request import FinishReason, Request

Floats = NDArray[np.float64]

LINEAR, PER_OCTAVE, OCTAVES = 16, 8, 12
BUCKETS = LINEAR + PER_OCTAVE * OCTAVES
"""The scale of lengths: each one up to 16, then eight buckets a doubling, up to 65,536."""
MEMORY = 400
"""A class forgets: of its older requests less counts the more have ended since."""
LEAN, LEAN_ON_GUESS = 16.0, 2.0
"""A class counts as if so many of its parent's had ended in it."""
CLASSES_MOST = 256
"""More are not told apart: their requests count as their sender's, or everybody's."""
CERTAIN = 0
"""The class of requests that end where they are told to, and nowhere before."""
EVERYBODY = 1
INTERVAL = (0.10, 0.90)
"""Of the lengths that a class may come to, what lies between these is what it is expected to."""
MARGIN, MARGIN_MOST, MARGIN_STEP = 1.0, 3.0, 0.2
PREEMPTED_AIM = 0.01
"""A preemption widens the margin by a step, and a hundred ends while others wait take it back: it
settles where one request in a hundred is preempted, whatever the expectation is worth."""
SCORED, SCORED_LEAST = 200, 32
"""Coverage is of the last so many ended requests, and is judged from so many on."""
FAILS, RETURNS = 0.65, 0.70
"""Below this coverage nothing is predicted any more; at that one it is again."""


EDGES = np.concatenate(
    [np.arange(LINEAR), LINEAR * 2.0 ** (np.arange(BUCKETS - LINEAR + 1) / PER_OCTAVE)]
)
"""The shortest length of each bucket, and where the last one ends."""
LONGEST = math.ceil(EDGES[BUCKETS - 1])
"""Longer ones are not told apart."""
GUESS = (1 - np.arange(BUCKETS + 2) / (BUCKETS + 2)) ** 1.5
"""Of outputs of which nothing is known, the share that is at least as long as each edge: half are
above 100 tokens, a fifth above 2,000."""


def _places() -> tuple[NDArray[np.int64], Floats]:
    """Of each length its bucket, and how far into it it lies."""
    lengths = np.arange(LONGEST + 1, dtype=np.float64)
    above = LINEAR + PER_OCTAVE * np.log2(np.maximum(lengths, LINEAR) / LINEAR)
    places = np.where(lengths <= LINEAR, lengths, above)
    buckets = places.astype(np.int64)
    return buckets, places - buckets


BUCKET, INTO = _places()


class OutputLengths:
    """Learns at each end of a request; answers with shares of a class that reach a length."""

    def __init__(self) -> None:
        self._classes: dict[tuple[int, int], int] = {}
        """(sender, bits of the prompt's length; -1 for all) -> row of the tables."""
        self._parents = [CERTAIN, EVERYBODY]
        self._counts = np.zeros((2, BUCKETS))
        """Ended requests of each class by bucket, older ones faded."""
        self._reach = np.stack([np.ones_like(GUESS), GUESS])
        """Of each class the share that is at least as long as each edge."""
        self._hits: deque[bool] = deque(maxlen=SCORED)
        self.margin = MARGIN
        """Room is kept for so many standard deviations above what is expected."""
        self.hold = True
        """The intervals hold: what is predicted may be relied on."""

    # --- asking -------------------------------------------------------------------------

    def class_of(self, request: Request) -> int:
        """The request's row; it keeps it for life."""
        params = request.params
        if params.ignore_eos and not params.stop and not params.stop_token_ids:
            return CERTAIN
        sender = hash((request.source, request.client))
        everything = self._row((sender, -1), EVERYBODY)
        return self._row((sender, len(request.prompt_ids).bit_length()), everything)

    def reach(self, rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> Floats:
        """The share of outputs of class `rows` that have at least `lengths` tokens; shapes as in
        any sum of both."""
        lengths = np.minimum(lengths, LONGEST)
        cells = rows * self._reach.shape[1] + BUCKET[lengths]
        reach = self._reach.ravel()
        at_edge = reach[cells]
        return at_edge + INTO[lengths] * (reach[cells + 1] - at_edge)

    def median(self, row: int) -> int:
        return int(EDGES[self._edge(row, 0.5)])

    def expect(self, request: Request, most: int) -> None:
        """Note how long its output is expected to be, of `most` tokens at most: it is started."""
        row = request.length_class
        if row != CERTAIN:
            low, high = EDGES[self._edge(row, INTERVAL[0]) - 1], EDGES[self._edge(row, INTERVAL[1])]
            request.expected = min(int(low), most), min(int(high), most)

    def _edge(self, row: int, share: float) -> int:
        """The first edge, from 1 on, that no more than 1 − `share` of the outputs reach."""
        edge = int(np.searchsorted(-self._reach[row], share - 1))
        return min(max(edge, 1), BUCKETS)

    @property
    def coverage(self) -> float | None:
        """Of the outputs that ended lately, the share that was as long as expected; None while
        too few have."""
        hits = self._hits
        return sum(hits) / len(hits) if len(hits) >= SCORED_LEAST else None

    # --- learning -----------------------------------------------------------------------

    def learn(self, request: Request, reason: FinishReason, others_wait: bool) -> None:
        """An output has come to its end. Those that were broken off say nothing."""
        if others_wait:  # else no margin was needed, and it says nothing that none was missing
            self.margin = max(0.0, self.margin - MARGIN_STEP * PREEMPTED_AIM)
        row = request.length_class
        if row == CERTAIN or reason not in (FinishReason.STOP, FinishReason.LENGTH):
            return
        length = len(request.output_ids)
        if request.expected is not None:
            self._score(*request.expected, length)
        bucket = int(BUCKET[min(length, LONGEST)])
        rows = [row]
        while rows[-1] != EVERYBODY:
            rows.append(self._parents[rows[-1]])
        for row in reversed(rows):
            self._counts[row] *= 1 - 1 / MEMORY
            self._counts[row, min(bucket, BUCKETS - 1)] += 1
            self._refresh(row)

    def preempted(self) -> None:
        """Somebody had to give pages back for want of room."""
        self.margin = min(self.margin + MARGIN_STEP, MARGIN_MOST)

    def _score(self, low: int, high: int, length: int) -> None:
        self._hits.append(low <= length <= high)
        coverage = self.coverage
        if coverage is not None:
            self.hold = coverage >= (FAILS if self.hold else RETURNS)

    def _refresh(self, row: int) -> None:
        """The class's table from its counts and its parent's table."""
        counts = self._counts[row]
        lean, parent = LEAN, self._reach[self._parents[row]]
        if row == EVERYBODY:
            lean, parent = LEAN_ON_GUESS, GUESS
        longer = lean * parent
        longer[:BUCKETS] += counts[::-1].cumsum()[::-1]
        self._reach[row] = longer / longer[0]

    def _row(self, key: tuple[int, int], parent: int) -> int:
        row = self._classes.get(key)
        if row is None:
            if len(self._parents) >= CLASSES_MOST:
                return parent
            row = self._classes[key] = len(self._parents)
            self._parents.append(parent)
            self._counts = np.vstack([self._counts, np.zeros(BUCKETS)])
            self._reach = np.vstack([self._reach, self._reach[parent]])
        return row
