"""The sampler: logits -> one token a row, each row by its own request's parameters.

A row's random number is a hash of (its request's seed, the token's index), not the state of
a generator. So what a request gets depends on nothing but itself: not on its neighbours,
not on preemption, not on the order of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from engine.execution.logits import adjust
from engine.request import Request, SamplingParams, TokenLogprobs
from kernels import reference

Argmax = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

NUCLEUS_WIDTH = 256
"""Candidates looked at first; a row whose nucleus is wider sorts its whole vocabulary."""

UNSEEDED = 1 << 63
"""A bit that no seed of a request has: who gave none draws the numbers of no seed at all."""
_MASK = (1 << 64) - 1


class Sampler:
    def __init__(
        self, eos_ids: frozenset[int], seed: int = 0, argmax: Argmax = reference.argmax
    ) -> None:
        self.eos_ids = eos_ids
        self._seed = seed
        self._argmax = argmax

    def sample(
        self,
        logits: torch.Tensor,
        requests: Sequence[Request],
        ahead: Sequence[Sequence[int]] = (),
    ) -> list[int | None]:
        """Token of each row of float32 [R, vocab], None where the row is not finite.

        `ahead`, where any row has some: the tokens of a draft that each row stands behind, as
        if they were known. May write into `logits`. Leaves log probabilities in the requests
        that want them, a row's behind those of the rows before it.
        """
        after = ahead or [()] * len(requests)
        wanting = [row for row, r in enumerate(requests) if r.params.logprobs is not None]
        raw = logits[wanting] if wanting else None
        best, tokens = self._argmax(logits)
        made = [len(r.output_ids) + len(a) for r, a in zip(requests, after, strict=True)]
        changed = [row for row, r in enumerate(requests) if r.params.adjusts(made[row])]
        if changed:
            for row in changed:
                adjust(logits[row], requests[row], self.eos_ids, after[row])
            tokens[changed] = self._argmax(logits[changed])[1]
        drawn = [row for row, r in enumerate(requests) if r.params.temperature > 0]
        if drawn:
            params = [requests[row].params for row in drawn]
            uniform = [self.uniform(requests[row], made[row]) for row in drawn]
            tokens[drawn] = draw(logits[drawn], params, uniform)
        if raw is not None:
            note_logprobs(raw, [requests[row] for row in wanting], tokens[wanting])
        pairs = zip(tokens.tolist(), best.tolist(), strict=True)
        return [token if math.isfinite(logit) else None for token, logit in pairs]

    def damaged(self, logits: torch.Tensor, requests: Sequence[Request]) -> list[Request]:
        """Those of `requests` whose row of float32 [S, vocab] is not finite."""
        if not requests:
            return []
        best, _ = self._argmax(logits)
        pairs = zip(requests, best.tolist(), strict=True)
        return [request for request, logit in pairs if not math.isfinite(logit)]

    def uniform(self, request: Request, index: int) -> float:
        """In [0, 1): the random number of the request's output token `index`."""
        seed = request.params.seed
        if seed is None:
            seed = (_splitmix(self._seed) + request.number) | UNSEEDED
        return _splitmix(_splitmix(seed) ^ index) / 2.0**64


def note_logprobs(logits: torch.Tensor, requests: list[Request], tokens: torch.Tensor) -> None:
    """Log probabilities of `tokens` [R] and of each row's likeliest ones, into the requests."""
    most = min(max(r.params.logprobs or 0 for r in requests), logits.shape[1])
    everything = logits.float().log_softmax(-1)
    chosen = everything.gather(1, tokens.to(logits.device)[:, None]).squeeze(1).tolist()
    best = everything.topk(most)
    ids, values = best.indices.tolist(), best.values.tolist()
    for row, (request, token) in enumerate(zip(requests, tokens.tolist(), strict=True)):
        count = request.params.logprobs or 0
        top = tuple(zip(ids[row][:count], values[row][:count], strict=True))
        request.logprobs.append(TokenLogprobs(token, chosen[row], top))


def draw(logits: torch.Tensor, params: list[SamplingParams], uniform: list[float]) -> torch.Tensor:
    """Temperature, min-p, top-k, top-p, then inverse CDF: [R, vocab] -> int64 [R]."""
    device = logits.device
    temperature = torch.tensor([p.temperature for p in params], device=device)
    probs = (logits / temperature[:, None].clamp_min(1e-5)).softmax(-1)
    if any(p.min_p for p in params):
        least = torch.tensor([p.min_p for p in params], device=device)[:, None]
        probs = probs.masked_fill(probs < least * probs.amax(-1, keepdim=True), 0.0)
        probs /= probs.sum(-1, keepdim=True)
    plain = [i for i, p in enumerate(params) if p.top_k == 0 and p.top_p >= 1.0]
    cut = [i for i, p in enumerate(params) if not (p.top_k == 0 and p.top_p >= 1.0)]
    tokens = torch.empty(len(params), dtype=torch.int64, device=device)
    if plain:
        tokens[plain] = _invert(probs[plain], [uniform[i] for i in plain])
    width = min(NUCLEUS_WIDTH, logits.shape[1])
    while cut:
        some = [params[i] for i in cut]
        candidates, ids, enough = _nucleus(probs[cut], some, width)
        chosen = _invert(candidates, [uniform[i] for i in cut])
        tokens[cut] = ids.gather(1, chosen[:, None]).squeeze(1)
        cut = [i for i, good in zip(cut, enough.tolist(), strict=True) if not good]
        width = logits.shape[1]
    return tokens


def _nucleus(
    probs: torch.Tensor, params: list[SamplingParams], width: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The `width` likeliest tokens, zero outside top-k and top-p; and whether that suffices."""
    vocab = probs.shape[1]
    top_k = torch.tensor([p.top_k or vocab for p in params], device=probs.device)[:, None]
    top_p = torch.tensor([p.top_p for p in params], device=probs.device)[:, None]
    values, ids = probs.topk(width)
    values = values.masked_fill(torch.arange(width, device=probs.device) >= top_k, 0.0)
    total = values.sum(-1, keepdim=True)
    mass = torch.where(top_k < vocab, total, torch.ones_like(total))
    before = values.cumsum(-1) - values
    # Between width and vocab the mass that top-p is a share of is not known yet.
    enough = (top_k <= width) | ((top_k == vocab) & (total >= top_p)) | (width == vocab)
    return values.masked_fill(before >= top_p * mass, 0.0), ids, enough.squeeze(1)


def _invert(probs: torch.Tensor, uniform: list[float]) -> torch.Tensor:
    """Inverse CDF of each row's (unnormalised) weights at its uniform number."""
    cdf = probs.double().cumsum(-1)
    target = torch.tensor(uniform, dtype=torch.float64, device=probs.device)[:, None] * cdf[:, -1:]
    index = torch.searchsorted(cdf, target, right=True).squeeze(1)
    last = probs.shape[1] - 1 - (probs > 0).flip(-1).byte().argmax(-1)
    return torch.minimum(index, last)


def _splitmix(x: int) -> int:
    """SplitMix64 (Steele, Lea, Flood 2014): a 64-bit mix with good avalanche."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
