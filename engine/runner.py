"""ModelRunner: a Plan becomes tensors, tensors become logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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


class BlockTables:
    """The block tables of all running requests as one array, a row for each slab.

    A table only grows while its request holds the slab, so a step copies new pages alone.
    """

    def __init__(self, slabs: int, width: int) -> None:
        self._table = np.full((slabs, width), -1, np.int32)
        self._known = [(0, 0)] * slabs
        """What each row holds: (request number and how often it was preempted, pages)."""

    def rows(self, requests: list[Request], slabs: np.ndarray) -> np.ndarray:
        """int32 [B, W], as wide as the longest of them needs."""
        width = 0
        for request in requests:
            pages, owner = request.pages, (request.number << 16) + request.preemptions
            held = len(pages)
            if self._known[request.slab] != (owner, held):
                before, count = self._known[request.slab]
                first = count if before == owner else 0
                self._table[request.slab, first:held] = pages[first:]
                self._known[request.slab] = (owner, held)
            width = max(width, held)
        return self._table[slabs, :width]


class ModelRunner:
    """`max_batch` sequences of at most `max_model_len` tokens at once."""

    def __init__(
        self, model: Llama, cache: KvCache, device: str, max_batch: int, max_model_len: int
    ) -> None:
        self.model = model.on(cache.layers)
        self._cache = cache
        self._device = device
        self._tables = BlockTables(max_batch, -(-max_model_len // cache.layout.page_tokens))

    def build(self, plan: Plan) -> Batch:
        tokens: list[int] = []
        logit_rows: list[int] = []
        for request, start, count, samples, _ in plan.items:
            if count == 1 and samples and request.output_ids:
                tokens.append(request.output_ids[-1])
            else:
                tokens.extend(request.token_ids(start, start + count))
            if samples:
                logit_rows.append(len(tokens) - 1)
        requests = [item.request for item in plan.items]
        slabs = np.array([request.slab for request in requests], np.int32)
        step = KvStep.from_arrays(
            self._cache.layout.page_tokens,
            np.array([item.tokens for item in plan.items], np.int32),
            np.array([item.start for item in plan.items], np.int32),
            self._tables.rows(requests, slabs),
            slabs,
            self._device,
        )
        return Batch(
            torch.tensor(tokens, device=self._device),
            step,
            torch.tensor(logit_rows, dtype=torch.int64, device=self._device),
            [item.request for item in plan.items if item.samples],
        )

    def run(self, batch: Batch) -> torch.Tensor:
        """float32 logits [R, vocab]; the batch's K and V are in the cache afterwards."""
        return self.model(batch.tokens, batch.step, batch.logit_rows)
