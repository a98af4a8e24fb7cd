"""ModelRunner: a Plan becomes tensors, tensors become logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.kv_cache import KvCache
from engine.models.llama import Llama
from engine.request import Request
from engine.scheduler import Plan
from kernels.layout import KvStep


@dataclass
class Batch:
    """One step's input."""

    tokens: torch.Tensor
    """int64 [T]"""
    step: KvStep
    logit_rows: torch.Tensor
    """int64 [R]: the batch row whose logits each sampling request gets."""
    sampling: list[Request]
    """[R], in the order of `logit_rows`."""


class ModelRunner:
    def __init__(self, model: Llama, cache: KvCache, device: str) -> None:
        self._model = model
        self._cache = cache
        self._device = device

    def build(self, plan: Plan) -> Batch:
        tokens: list[int] = []
        logit_rows: list[int] = []
        for item in plan.items:
            start = item.start
            tokens.extend(item.request.token_ids(start, start + item.tokens))
            if item.samples:
                logit_rows.append(len(tokens) - 1)
        requests = [item.request for item in plan.items]
        step = KvStep.build(
            self._cache.layout.page_tokens,
            [item.tokens for item in plan.items],
            [item.start for item in plan.items],
            [request.pages for request in requests],
            [request.slab for request in requests],
            self._device,
        )
        return Batch(
            torch.tensor(tokens, device=self._device),
            step,
            torch.tensor(logit_rows, dtype=torch.int64, device=self._device),
            [item.request for item in plan.items if item.samples],
        )

    @torch.inference_mode()
    def run(self, batch: Batch) -> torch.Tensor:
        """float32 logits [R, vocab]; the batch's K and V are in the cache afterwards."""
        return self._model.forward(batch.tokens, batch.step, self._cache.layers, batch.logit_rows)
