"""Bucketing and padding of decode graphs, with eager calls in place of recorded ones."""

from __future__ import annotations

import pytest
import torch

from builders import tiny_loaded
from engine import EngineConfig
from engine.errors import ConfigError
from engine.execution import load as setup
from engine.execution.graphs import GraphRunner, Replay, StaticBatch, buckets, is_decode
from engine.execution.kv_cache import KvCache, layout_for
from engine.execution.runner import Batch, ModelRunner
from engine.models.llama import OnCache
from kernels.dispatch import select
from kernels.layout import KvStep

LONGEST = 64
CONFIG = EngineConfig(kv_format="int8_channel", max_batch=4, token_budget=32)


@pytest.mark.parametrize(
    ("max_batch", "sizes"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (8, [1, 2, 4, 8]),
        (20, [1, 2, 4, 8, 16, 20]),
        (48, [1, 2, 4, 8, 16, 24, 32, 40, 48]),
    ],
)
def test_buckets_end_at_the_largest_batch(max_batch: int, sizes: list[int]) -> None:
    assert buckets(max_batch) == sizes


def decode(rows: int, context: int = 3) -> Batch:
    """One row for each of `rows` sequences, with a page and a slab of their own."""
    pages = [[b] for b in range(rows)]
    step = KvStep.build(16, [1] * rows, [context] * rows, pages, list(range(rows)))
    return Batch(torch.arange(5, 5 + rows), step, torch.arange(rows), [])


def prefill() -> Batch:
    step = KvStep.build(16, [3, 1], [0, 0], [[0], [1]], [0, 1])
    return Batch(torch.tensor([5, 6, 7, 8]), step, torch.tensor([2, 3]), [])


def test_only_batches_of_single_rows_that_all_sample_are_decode() -> None:
    assert is_decode(decode(3))
    assert not is_decode(prefill())
    silent = decode(3)
    silent.logit_rows = torch.tensor([0, 2])
    assert not is_decode(silent)


def test_a_smaller_batch_leaves_nothing_of_a_larger_one() -> None:
    static = StaticBatch.empty(4, 4, 16, LONGEST, "cpu")
    static.fill(decode(4, context=9))
    static.fill(decode(2))
    step = static.step
    assert static.tokens.tolist() == [5, 6, 0, 0]
    assert step.context.tolist() == step.positions.tolist() == [3, 3, 0, 0]
    assert step.slab.tolist() == [0, 1, -1, -1]
    assert step.table[:, 0].tolist() == [0, 1, -1, -1]
    assert step.row_start.tolist() == [0, 1, 2, 3, 4]
    assert step.max_context == LONGEST


def runners() -> tuple[ModelRunner, GraphRunner, list[int]]:
    """A plain and a graph runner, each on a cache of its own, and the sizes replayed.

    Kernels run in Triton's interpreter: those that skip padding are the ones that need it.
    """
    launch = pytest.importorskip("kernels.triton.launch")
    if not launch.is_interpreted():
        pytest.skip("eager calls on a CPU need TRITON_INTERPRET=1")
    replayed: list[int] = []

    def record(model: OnCache, static: StaticBatch) -> Replay:
        def replay() -> torch.Tensor:
            replayed.append(static.size)
            return model(static.tokens, static.step, static.logit_rows)

        return replay

    loaded = tiny_loaded(select("triton").ops, layers=1)
    layout = layout_for(CONFIG, loaded.spec.kv_heads, loaded.spec.head_dim)
    caches = [KvCache(layout, 1, 1 << 20, 4, 32, 8) for _ in range(2)]
    for cache in caches:
        cache.layers[0].pages.zero_()
        cache.layers[0].slabs.zero_()
    plain = ModelRunner(loaded.model, caches[0], "cpu", 4, LONGEST)
    graphed = GraphRunner(loaded.model, caches[1], "cpu", 4, LONGEST, record)
    return plain, graphed, replayed


def test_decode_batches_are_replayed_in_the_next_bucket() -> None:
    plain, graphed, replayed = runners()
    for batch in (prefill(), decode(2, context=15), decode(3, context=16)):
        torch.testing.assert_close(graphed.run(batch), plain.run(batch))
    assert replayed == [2, 4]
    for mine, theirs in zip(graphed._cache.layers, plain._cache.layers, strict=True):
        assert torch.equal(mine.pages, theirs.pages)
        assert torch.equal(mine.slabs.view(torch.int16), theirs.slabs.view(torch.int16))


def test_logits_outlive_the_next_replay() -> None:
    _, graphed, _ = runners()
    first = graphed.run(decode(1))
    kept = first.clone()
    graphed.run(decode(1, context=4))
    assert torch.equal(first, kept)


def test_graphs_without_a_gpu_are_refused() -> None:
    config = CONFIG.with_(cuda_graphs=True, device="cpu", kernels="reference")
    loaded = tiny_loaded(select("reference").ops)
    with pytest.raises(ConfigError, match="need triton kernels on a CUDA device, here it is cpu"):
        setup.build(config, loaded)


def test_require_triton_stops_a_start_that_would_fall_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU is there, and Triton is not usable on it."""
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    spec = tiny_loaded(select("reference").ops).spec
    device, backend = setup.select_kernels(CONFIG, spec)
    assert (device, backend.name) == ("cuda", "reference") and "(slow)" in backend.reason
    with pytest.raises(ConfigError, match="triton does not work on cuda"):
        setup.select_kernels(CONFIG.with_(require_triton=True), spec)
