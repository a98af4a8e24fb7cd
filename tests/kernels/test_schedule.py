"""However tokens are split into steps, whoever shares them: the same result.

To the bit in C; the reference multiplies matrices of other shapes, so to a few last bits.
"""

from __future__ import annotations

import pytest
import torch

from kernels.layout import KvStep
from kv_builders import (
    VARIANTS,
    Shape,
    Variant,
    backend,
    chunks_of,
    feed,
    make_cache,
    random_qkv,
    rope,
    stored,
    tables,
)

SHAPE = Shape()
LENGTH = 3 * SHAPE.page + 2


def same(kind: str, a: torch.Tensor, b: torch.Tensor) -> None:
    if kind == "cpu":
        assert torch.equal(a, b)
    else:
        torch.testing.assert_close(a, b, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_chunk_size_gives_what_decode_gives(kind: str, variant: Variant) -> None:
    run, x = backend(kind), random_qkv(LENGTH, SHAPE)
    decode = make_cache(variant, SHAPE, tokens=LENGTH)
    (one_by_one,) = feed(run, decode, [x], [[1] * LENGTH], SHAPE)
    sealed = LENGTH // SHAPE.page * SHAPE.page
    (table,) = tables(1, LENGTH, SHAPE)
    sizes = range(2, 3 * SHAPE.page + 2) if kind == "cpu" else (5, 16, 17, 33, 49)
    for size in sizes:
        kv = make_cache(variant, SHAPE, tokens=LENGTH)
        (out,) = feed(run, kv, [x], [chunks_of(LENGTH, size)], SHAPE)
        same(kind, out, one_by_one)
        assert torch.equal(torch.stack(stored(kv, table, sealed)),
                           torch.stack(stored(decode, table, sealed)))  # fmt: skip


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_neighbours_change_nothing(kind: str, variant: Variant) -> None:
    run = backend(kind)
    lengths, sizes = [LENGTH, 37, 5, 16], [7, 37, 1, 16]
    xs = [random_qkv(n, SHAPE, seed=i) for i, n in enumerate(lengths)]
    chunks = [chunks_of(n, size) for n, size in zip(lengths, sizes, strict=True)]
    together = feed(run, make_cache(variant, SHAPE, sequences=4, tokens=LENGTH), xs, chunks, SHAPE)
    for x, c, out in zip(xs, chunks, together, strict=True):
        (alone,) = feed(run, make_cache(variant, SHAPE, tokens=len(x)), [x], [c], SHAPE)
        same(kind, out, alone)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_thread_count_changes_nothing(variant: Variant) -> None:
    run, before = backend("cpu"), torch.get_num_threads()
    xs = [random_qkv(LENGTH, SHAPE, seed=i) for i in range(3)]
    chunks = [chunks_of(LENGTH, size) for size in (50, 9, 17)]
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            kv = make_cache(variant, SHAPE, sequences=3, tokens=LENGTH)
            results.append(torch.cat(feed(run, kv, xs, chunks, SHAPE)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.open_page], ids=str)
def test_a_later_token_reaches_no_earlier_query(kind: str, variant: Variant) -> None:
    """Its value may even overflow hp: only the queries from it on may notice."""
    run, x = backend(kind), random_qkv(20, SHAPE)
    wild = x.clone()
    wild[13] *= 1e6
    outs = [
        feed(run, make_cache(variant, SHAPE, tokens=20), [rows], [[20]], SHAPE)[0]
        for rows in (x, wild)
    ]
    assert outs[0][:13].isfinite().all()
    if kind == "cpu":  # the reference multiplies masked weights of zero by infinity
        assert torch.equal(outs[0][:13], outs[1][:13])
    assert not torch.equal(outs[0][13:], outs[1][13:])


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_a_recomputed_sequence_gets_its_old_results(kind: str) -> None:
    """After preemption: other pages, another slab, another chunking."""
    run, x, variant = backend(kind), random_qkv(40, SHAPE), Variant("int8_channel", 4)
    kv = make_cache(variant, SHAPE, sequences=2, tokens=48)
    (first,) = feed(run, kv, [x], [chunks_of(40, 1)], SHAPE)
    step = KvStep.build(SHAPE.page, [40], [0], [[5, 3, 4]], [1])
    q = run.append_kv(x, kv, step, rope(SHAPE))
    same(kind, run.attend(q, kv, step, SHAPE.scale), first)
