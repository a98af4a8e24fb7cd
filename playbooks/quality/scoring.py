"""Teacher-forced scoring: two arms read the same text and their predictions are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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

    @property
    def first(self) -> int:
        """The first position that is scored."""
        return max(len(self.tokens) - 1 - SCORED_MOST, 0)

    @property
    def following(self) -> torch.Tensor:
        """The token that follows each scored position."""
        return torch.tensor(self.tokens[self.first + 1 :])


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
