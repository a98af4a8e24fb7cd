"""How far one model's predictions are from another's, position by position, and in sum.

Everything compares full distributions over the vocabulary at the same position of the same
text, so nothing depends on how answers happen to be worded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from playbooks.statistics.intervals import LEVEL, P99_LEAST, RESAMPLES

ROWS = 64
"""Positions compared at once: a bound on the temporary memory."""


@dataclass(frozen=True)
class Scores:
    """One number a position, float64 [n] each."""

    kld: np.ndarray
    """KL(baseline ‖ candidate), in nats."""
    agree: np.ndarray
    """1 where both would choose the same token greedily, else 0."""
    dp: np.ndarray
    """Change of the probability of the token that really follows."""
    nll_base: np.ndarray
    """−ln p of that token."""
    nll: np.ndarray

    @classmethod
    def join(cls, parts: Sequence[Scores]) -> Scores:
        names = ("kld", "agree", "dp", "nll_base", "nll")
        empty = [np.zeros(0)]
        return cls(*(np.concatenate([getattr(p, n) for p in parts] or empty) for n in names))

    def __len__(self) -> int:
        return len(self.kld)


@torch.inference_mode()
def compare(base: torch.Tensor, candidate: torch.Tensor, following: torch.Tensor) -> Scores:
    """Logits [n, vocab] of both, and the token that follows each position [n]."""
    pieces = (slice(i, i + ROWS) for i in range(0, len(base), ROWS))
    return Scores.join([_compare_rows(base[s], candidate[s], following[s]) for s in pieces])


def _compare_rows(base: torch.Tensor, candidate: torch.Tensor, following: torch.Tensor) -> Scores:
    p, q = base.log_softmax(-1), candidate.log_softmax(-1)
    kld = (p.exp() * (p - q)).sum(-1).clamp_min(0.0)
    true_p, true_q = (x.gather(1, following[:, None]).squeeze(1) for x in (p, q))
    columns = (kld, p.argmax(-1) == q.argmax(-1), true_q.exp() - true_p.exp(), -true_p, -true_q)
    return Scores(*(column.double().cpu().numpy() for column in columns))


def summarise(scores: Scores) -> dict[str, float | None]:
    """The metrics of many positions; None where there are too few for one."""
    n = len(scores)
    if n == 0:
        names = ("mean_kld", "p99_kld", "top1_agreement", "rms_dp", "ppl_change")
        return dict.fromkeys(names)
    return {
        "mean_kld": float(scores.kld.mean()),
        "p99_kld": float(np.quantile(scores.kld, 0.99)) if n >= P99_LEAST else None,
        "top1_agreement": float(scores.agree.mean()),
        "rms_dp": float(np.sqrt(np.square(scores.dp).mean())),
        "ppl_change": math.expm1(float((scores.nll - scores.nll_base).mean())),
    }


def mean_interval(per_case: Sequence[np.ndarray], seed: int = 0) -> tuple[float, float] | None:
    """95 % bootstrap interval of the mean over all positions; None below two cases.

    Whole cases are drawn, because the positions of one text are not independent.
    """
    if len(per_case) < 2:
        return None
    sums = np.array([values.sum() for values in per_case])
    counts = np.array([len(values) for values in per_case])
    draws = np.random.default_rng(seed).integers(0, len(sums), (RESAMPLES, len(sums)))
    means = sums[draws].sum(1) / counts[draws].sum(1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
