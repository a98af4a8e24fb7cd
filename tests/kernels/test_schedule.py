"""However tokens are split into steps, whoever shares them: the same result.

To the bit in C; the reference multiplies matrices of other shapes, so to a few last bits.
"""

from __future__ import annotations

import pytest
import torch

from kernels.cpu import build
from kernels.cpu import kv as cache_kernels
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


SIZES = [
    Shape(head_dim=8, group=1),
    Shape(head_dim=8, group=5, page=32),
    Shape(head_dim=16, group=1),
    Shape(head_dim=16, group=2, page=32),
    Shape(head_dim=24, group=4),
    Shape(head_dim=40, group=8),
    Shape(head_dim=48, group=7),
    Shape(head_dim=80, group=2, page=32),
    Shape(head_dim=256, group=1),
]
"""Small heads, which a compiler unrolls whole, odd groups, and tiles of a single row."""


def in_chunks(variant: Variant, shape: Shape, size: int) -> torch.Tensor:
    length = 2 * shape.page + 5
    x, kv = random_qkv(length, shape), make_cache(variant, shape, tokens=length)
    return feed(backend("cpu"), kv, [x], [chunks_of(length, size)], shape)[0]


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.outliers or "fp" in v.fmt], ids=str)
@pytest.mark.parametrize("shape", SIZES, ids=lambda s: f"D{s.head_dim}-G{s.group}-P{s.page}")
def test_every_head_size_has_the_same_bits_alone_and_in_a_batch(
    shape: Shape, variant: Variant
) -> None:
    alone = in_chunks(variant, shape, 1)
    for size in (7, 2 * shape.page + 5):
        assert torch.equal(in_chunks(variant, shape, size), alone)


@pytest.mark.parametrize("flags", ["-O1", "-Os", "-O3 -funroll-all-loops", "-fno-tree-vectorize"])
@pytest.mark.parametrize("head_dim", [16, 64])
def test_the_compiler_s_flags_change_no_bit(
    head_dim: int, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is fused but where the source says so: unrolling and scheduling are free."""
    shape, variant = Shape(head_dim=head_dim), Variant("int8_channel", 4, True)
    usual = in_chunks(variant, shape, 7)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, *flags.split()))
    monkeypatch.setattr(
        cache_kernels, "library", cache_kernels.library.__wrapped__
    )  # not the one that is loaded
    assert torch.equal(in_chunks(variant, shape, 7), usual)


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
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.open_page], ids=str)
def test_a_recomputed_sequence_gets_its_old_results(kind: str, variant: Variant) -> None:
    """After preemption: other pages, another slab, another chunking."""
    run, x = backend(kind), random_qkv(40, SHAPE)
    kv = make_cache(variant, SHAPE, sequences=2, tokens=48)
    (first,) = feed(run, kv, [x], [chunks_of(40, 1)], SHAPE)
    step = KvStep.build(SHAPE.page, [40], [0], [[5, 3, 4]], [1])
    q = run.append_kv(x, kv, step, rope(SHAPE))
    same(kind, run.attend(q, kv, step, SHAPE.scale), first)
