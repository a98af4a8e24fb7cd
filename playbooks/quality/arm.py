"""An arm: one model on one cache format, through which token ids are fed.

It owns what an engine owns, the scheduler, the pages and the runner, and nothing else: what
is measured is what serves. It keeps the logits of many positions, which an engine never
does, and lets the pages be read while the sequence is in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from engine.config import EngineConfig
from engine.execution import load as setup
from engine.execution.calibration import Calibration
from engine.execution.kv_cache import KvCache, layout_for, memory_needed
from engine.models import LoadedModel
from engine.request import FinishReason, Request, SamplingParams
from engine.scheduling.plan import Plan
from engine.stream import Stream

CHUNK = 256
"""Tokens that go through the model at once."""

PLAIN: dict[str, Any] = {
    "policy": "continuous",
    "allocator": "paged",
    "reserve": None,
    "prefix_cache": False,
    "dynamic_batch": False,
    "cuda_graphs": False,
    "max_model_len": None,
    "timeout_s": None,
}
"""Settings that must not come between two arms."""


@dataclass(frozen=True)
class Held:
    """A sequence whose K and V are in the cache."""

    logits: torch.Tensor
    """float32 [tokens − first, vocab]: the prediction after every token from `first` on."""
    pages: list[int]
    """In token order."""


class QualityArm:
    """Raises ConfigError when `config` and the model do not fit together."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        longest: int,
        chunk: int = CHUNK,
        calibration: Calibration | None = None,
    ) -> None:
        """`longest`: tokens of the longest sequence to come."""
        self.config = sized(config, loaded, longest, 1, chunk)
        self.loaded = loaded
        compute, self._scheduler = setup.build(self.config, loaded, calibration)
        self.backend, self.device = compute.backend, compute.device
        self.cache: KvCache = compute.cache
        self._runner = compute.runner

    def watch(self, see: Callable[[str, torch.Tensor], None]) -> None:
        """From now on `see` is given the name and the rows of every product."""
        self._runner.model = self.loaded.model.watched(self.cache.layers, see)

    def logits(self, tokens: list[int], first: int = 0) -> torch.Tensor:
        """float32 [len(tokens) − first, vocab]."""
        with self.feed(tokens, first) as held:
            return held.logits

    @contextmanager
    def feed(self, tokens: list[int], first: int | None = None) -> Iterator[Held]:
        """Run one sequence through the model; its pages are free again afterwards.

        `first`: the first position whose logits are wanted; None for no logits at all.
        """
        request = Request("arm", SamplingParams(1), Stream("arm"), prompt_ids=list(tokens))
        refusal = self._scheduler.refusal(request)
        if refusal is not None:
            raise ValueError(refusal)
        self._scheduler.add(request)
        start = len(tokens) if first is None else first
        try:
            rows = []
            while request.num_pending:
                rows.append(self._step(self._scheduler.plan(time.monotonic_ns()), start))
            yield Held(torch.cat(rows), request.pages)
        finally:
            self._scheduler.finish(request, FinishReason.CANCELLED)

    def _step(self, plan: Plan, first: int) -> torch.Tensor:
        item = plan.items[0]
        before = item.request.num_computed
        batch = self._runner.build(plan)
        wanted = range(max(first - before, 0), item.tokens)
        batch.logit_rows = torch.tensor(wanted, dtype=torch.int64, device=self.device)
        logits = self._runner.run(batch)
        self._scheduler.publish(self._scheduler.accept(plan.items))
        return logits


def sized(
    config: EngineConfig, loaded: LoadedModel, longest: int, batch: int, chunk: int
) -> EngineConfig:
    """`config` with memory for `batch` sequences of `longest` tokens, in steps of `chunk`."""
    layout = layout_for(config, loaded.spec.kv_heads, loaded.spec.head_dim)
    pages = batch * (longest // config.page_tokens + 2)
    memory = memory_needed(layout, loaded.spec.layers, pages, batch, chunk)
    return config.with_(**PLAIN, max_batch=batch, min_batch=1, token_budget=chunk, kv_memory=memory)
