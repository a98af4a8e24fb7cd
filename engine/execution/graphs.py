"""Decode batches as CUDA graphs: a step's launches are recorded once and replayed.

A small model's decode step is some hundreds of launches of a few microseconds each, and
Python takes longer to make them than the GPU to run them. A graph has fixed shapes and
addresses, so there is one per bucket of batch sizes, with input tensors of its own; rows
that only fill up a bucket have no slab and no page (-1), which the Triton kernels skip.
Steps with a prefill in them run as always.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.execution.kv_cache import KvCache
from engine.execution.runner import Batch, ModelRunner
from engine.models.llama import Llama, OnCache
from kernels.layout import KvStep

FINE = 8
"""Batch sizes double up to here; from here on they grow by it."""

Replay = Callable[[], torch.Tensor]
"""Computes a step from what its static tensors hold now: logits [size, vocab]."""


def buckets(max_batch: int) -> list[int]:
    """Batch sizes that get a graph: 1, 2, 4, 8, 16, 24 … max_batch."""
    sizes = [1, 2, 4, *range(FINE, max_batch, FINE)]
    return [*(size for size in sizes if size < max_batch), max_batch]


@dataclass
class StaticBatch:
    """Input tensors at fixed addresses, for up to `size` sequences of one row each."""

    size: int
    tokens: torch.Tensor
    step: KvStep
    logit_rows: torch.Tensor

    @classmethod
    def empty(
        cls, size: int, width: int, page_tokens: int, max_model_len: int, device: str
    ) -> StaticBatch:
        """Filled with nothing but padding; block tables are `width` pages wide."""

        def full(shape: tuple[int, ...], value: int) -> torch.Tensor:
            return torch.full(shape, value, dtype=torch.int32, device=device)

        step = KvStep(
            page_tokens,
            row_start=torch.arange(size + 1, dtype=torch.int32, device=device),
            context=full((size,), 0),
            table=full((size, width), -1),
            slab=full((size,), -1),
            scratch=full((size,), 0),
            positions=full((size,), 0),
            scratch_blocks=0,
            max_context=max_model_len,
        )
        tokens = torch.zeros(size, dtype=torch.int64, device=device)
        return cls(size, tokens, step, torch.arange(size, device=device))

    def fill(self, batch: Batch) -> None:
        """Take over a decode batch; the rows after it become padding."""
        mine, step = self.step, batch.step
        rows, width = step.table.shape
        self._put(self.tokens, batch.tokens, 0)
        self._put(mine.context, step.context, 0)
        self._put(mine.positions, step.positions, 0)
        self._put(mine.slab, step.slab, -1)
        mine.table[:rows, :width] = step.table
        mine.table[rows:] = -1

    @staticmethod
    def _put(target: torch.Tensor, values: torch.Tensor, padding: int) -> None:
        target[: len(values)] = values
        target[len(values) :] = padding


def is_decode(batch: Batch) -> bool:
    """One row per sequence, and the logits of each are wanted, in their order."""
    rows = len(batch.tokens)
    return rows == len(batch.step.context) == len(batch.logit_rows) and not batch.silent


def record(model: OnCache, static: StaticBatch) -> Replay:
    """Capture one step on `static`. Needs a CUDA device and kernels that never wait for it."""

    def run() -> torch.Tensor:
        return model(static.tokens, static.step, static.logit_rows)

    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        run()  # compiles what has not been: nothing may be compiled during a capture
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = run()

    def replay() -> torch.Tensor:
        graph.replay()
        return logits

    return replay


class GraphRunner(ModelRunner):
    """A ModelRunner that replays decode batches. Every graph is recorded at the start."""

    def __init__(
        self,
        model: Llama,
        cache: KvCache,
        device: str,
        max_batch: int,
        max_model_len: int,
        record: Callable[[OnCache, StaticBatch], Replay] = record,
    ) -> None:
        super().__init__(model, cache, device, max_batch, max_model_len)
        page = cache.layout.page_tokens
        self._sizes = buckets(max_batch)
        self._graphs: list[tuple[StaticBatch, Replay]] = []
        for size in self._sizes:
            width = -(-max_model_len // page)
            static = StaticBatch.empty(size, width, page, max_model_len, device)
            self._graphs.append((static, record(self.model, static)))

    def run(self, batch: Batch) -> torch.Tensor:
        if not is_decode(batch):
            return super().run(batch)
        rows = len(batch.tokens)
        static, replay = self._graphs[bisect_left(self._sizes, rows)]
        static.fill(batch)
        # The next replay writes where this one did.
        return replay()[:rows].clone()
