"""Teacher-forced scoring: two arms read the same text and their predictions are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from playbooks.quality.arm import QualityArm
from playbooks.quality.metrics import Scores, compare

SCORED_MOST = 512
"""Positions of one text that are scored, the last ones: the head is the dearest matrix."""


@dataclass(frozen=True)
class Text:
    """A prompt with the answer that the baseline gave to it."""

    id: str
    category: str
    tokens: list[int]
    shared: int = 0
    """Tokens at its beginning that an earlier text begins with too."""

    @property
    def first(self) -> int:
        """The first position that is scored: not one that is another text's, of which there may be
        a hundred, as the head of a chat is. One position is always scored."""
        positions = len(self.tokens) - 1
        return max(min(max(self.shared, positions - SCORED_MOST), positions - 1), 0)

    @property
    def following(self) -> torch.Tensor:
        """The token that follows each scored position."""
        return torch.tensor(self.tokens[self.first + 1 :])


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that both begin with."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def apart(texts: Iterable[Text]) -> list[Text]:
    """The same texts, each knowing what it shares with those before it."""
    found: list[Text] = []
    for text in texts:
        shared = max((common(text.tokens, other.tokens) for other in found), default=0)
        found.append(replace(text, shared=shared))
    return found


def score(
    base: QualityArm, others: Sequence[QualityArm], texts: Iterable[Text], done: Callable[[], None]
) -> list[list[Scores]]:
    """[arm][text]: how far each of `others` is from `base`."""
    found: list[list[Scores]] = [[] for _ in others]
    for text in texts:
        wanted = base.logits(text.tokens[:-1], text.first)
        for arm, scores in zip(others, found, strict=True):
            following = text.following.to(wanted.device)
            scores.append(compare(wanted, arm.logits(text.tokens[:-1], text.first), following))
            done()
    return found
