"""ModelRunner: a Plan becomes tensors, tensors become logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import torch

from engine.execution.kv_cache import KvCache
from engine.models.llama import Llama
from engine.request import Request
from engine.scheduling.plan import Plan
from kernels.layout import KvStep, tensor_of


@dataclass
class Batch:
    """One step's input."""

    tokens: torch.Tensor
    """int64 [T]"""
    step: KvStep
    logit_rows: torch.Tensor
    """int64 [R + S]: batch rows whose logits are wanted, of `sampling` and then of `silent`."""
    sampling: list[Request]
    """[R]: those that get a token, once for each of their rows."""
    silent: Sequence[Request] = ()
    """[S]: those in the middle of their prompt; their logits say whether they are sound."""
    ahead: Sequence[Sequence[int]] = ()
    """[R], or none without a draft: the tokens of a draft that the row stands behind."""


class BlockTables:
    """The block tables of all running requests as one array, a row for each slab.

    A table only grows while its request holds the slab, so a step copies new pages alone.
    """

    def __init__(self, slabs: int, width: int) -> None:
        self._table = np.full((slabs, width), -1, np.int32)
        self._known = [(0, 0)] * slabs
        """What each row holds: (the life that owns it, pages)."""

    def rows(self, requests: Sequence[Request], slabs: np.ndarray) -> np.ndarray:
        """int32 [B, W], as wide as the longest of them needs."""
        known, table, width = self._known, self._table, 0
        for request in requests:
            slab, held = request.slab, len(request.pages)
            owner, count = known[slab]
            life = request.life
            if count != held or owner != life:
                first = count if owner == life else 0
                table[slab, first:held] = request.pages[first:]
                known[slab] = (life, held)
            if held > width:
                width = held
        return table[slabs, :width]


class ModelRunner:
    """`max_batch` sequences of at most `max_model_len` tokens at once."""

    def __init__(
        self, model: Llama, cache: KvCache, device: str, max_batch: int, max_model_len: int
    ) -> None:
        self.model = model.on(cache.layers)
        self._cache = cache
        self._device = device
        self._tables = BlockTables(max_batch, -(-max_model_len // cache.layout.page_tokens))

    def build(self, plan: Plan, last_only: bool = False) -> Batch:
        """`last_only`: of a draft's rows the last one alone is sampled."""
        requests, starts, counts, samples, padding, drafts = zip(*plan.items, strict=True)
        tokens: list[int] = []
        for request, start, count, last, _, draft in plan.items:
            if draft or (count == 1 and last and request.output_ids):
                tokens.append(request.output_ids[-1])
                tokens.extend(draft)
            else:
                tokens.extend(request.token_ids(start, start + count))
        slabs = np.array([request.slab for request in requests], np.int32)
        rows = np.array(counts, np.int32)
        step = KvStep.from_arrays(
            self._cache.layout.page_tokens,
            rows,
            np.array(starts, np.int32),
            self._tables.rows(requests, slabs),
            slabs,
            self._device,
        )
        last_rows = np.cumsum(rows, dtype=np.int64) - 1
        sampling, wanted = list(compress(requests, samples)), last_rows
        silent: list[Request] = []
        ahead: list[Sequence[int]] = []
        if any(drafts) and not last_only:
            sampling = [item.request for item in plan.items for _ in range(item.samples)]
            ahead = [item.draft[:n] for item in plan.items for n in range(item.samples)]
            ends = zip(last_rows.tolist(), samples, strict=True)
            rows_of = [range(end + 1 - count, end + 1) for end, count in ends]
            wanted = np.array([row for rows in rows_of for row in rows], np.int64)
        elif not all(samples):
            wanted = last_rows[np.array(samples, bool)]
        if not all(samples):
            quiet = [not (last or extra) for last, extra in zip(samples, padding, strict=True)]
            silent = list(compress(requests, quiet))
            wanted = np.concatenate((wanted, last_rows[quiet]))
        return Batch(
            tensor_of(np.array(tokens, np.int64), self._device),
            step,
            tensor_of(wanted, self._device),
            sampling,
            silent,
            ahead,
        )

    def run(self, batch: Batch) -> torch.Tensor:
        """float32 logits [R + S, vocab]; the batch's K and V are in the cache afterwards."""
        return self.model(batch.tokens, batch.step, batch.logit_rows)
