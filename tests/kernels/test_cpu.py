"""C against the reference: odd lengths, partial pages, every ratio of heads."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

from kernels import reference
from kernels.errors import KernelError
from kernels.layout import KvStep, LayerKv
from kernels.weights import Rope
from kv_builders import (
    VARIANTS,
    Shape,
    Variant,
    backend,
    generator,
    make_cache,
    no_rope,
    random_qkv,
    rope,
    tables,
)

SHAPES = [
    Shape(page=16, head_dim=64, group=3),
    Shape(page=32, head_dim=128, group=4),
    Shape(page=16, head_dim=128, group=8, kv_heads=1),
    Shape(page=32, head_dim=32, group=1, kv_heads=3),
    Shape(page=16, head_dim=24, group=5),
]
"""GQA ratios 1, 3, 4, 8 and one that fits no register block; D = 24 has an odd last column."""
BATCHES = {
    "one row": ([1], [0]),
    "one row late": ([1], [85]),
    "page just full": ([1, 32], [31, 0]),
    "odd lengths": ([7, 1, 33, 1, 50], [0, 13, 45, 64, 3]),
    "many rows": ([1] * 40 + [60], [*range(0, 120, 3), 20]),
}


def sizes(shape: Shape) -> str:
    return f"P{shape.page}-D{shape.head_dim}-G{shape.group}"


def filled(
    variant: Variant, shape: Shape, rows: list[int], context: list[int]
) -> tuple[LayerKv, KvStep]:
    """A cache that holds every sequence's context, and the step that adds `rows`."""
    tokens = max(c + n for c, n in zip(context, rows, strict=True))
    kv = make_cache(variant, shape, len(rows), tokens)
    table = tables(len(rows), tokens, shape)
    slabs = [b if variant.open_page else -1 for b in range(len(rows))]
    for b, before in enumerate(context):
        if before:
            step = KvStep.build(shape.page, [before], [0], [table[b]], [slabs[b]])
            reference.append_kv(random_qkv(before, shape, b), kv, step, rope(shape))
    return kv, KvStep.build(shape.page, rows, context, table, slabs)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=sizes)
def test_a_step_equals_the_reference(
    shape: Shape, variant: Variant, batch: tuple[list[int], list[int]]
) -> None:
    """Unturned keys reach both bit for bit, so the cache must be the same to the byte."""
    cpu = backend("cpu")
    theirs, step = filled(variant, shape, *batch)
    ours = deepcopy(theirs)
    x = random_qkv(sum(batch[0]), shape, seed=99)
    q = reference.append_kv(x, theirs, step, no_rope(shape))
    assert torch.equal(cpu.append_kv(x, ours, step, no_rope(shape)), q)
    assert torch.equal(ours.pages, theirs.pages)
    assert torch.equal(ours.slabs.view(torch.int16), theirs.slabs.view(torch.int16))
    want = reference.attend(q, theirs, step, shape.scale)
    got = cpu.attend(q, ours, step, shape.scale)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=sizes)
def test_norm_and_rotation_equal_the_reference(shape: Shape) -> None:
    cpu = backend("cpu")
    theirs, step = filled(Variant("fp16"), shape, [19, 1], [5, 40])
    ours = deepcopy(theirs)
    x = random_qkv(20, shape, seed=4)
    norms = torch.rand(2, shape.head_dim, generator=generator(1)) + 0.5
    want = reference.append_kv(x, theirs, step, rope(shape), norms[0], norms[1], 1e-5)
    got = cpu.append_kv(x, ours, step, rope(shape), norms[0], norms[1], 1e-5)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6)
    mine, other = (kv.layout.view(kv.pages, "k").float() for kv in (ours, theirs))
    torch.testing.assert_close(mine, other, rtol=2**-10, atol=1e-6, equal_nan=True)


def test_large_and_equal_scores_are_averaged_right() -> None:
    """All keys alike, logits in the thousands: the mean of the values, no overflow."""
    shape, cpu = Shape(), backend("cpu")
    x = random_qkv(70, shape)
    x[:, : -shape.kv_heads * shape.head_dim] = 30.0
    kv = make_cache(Variant("fp16"), shape)
    step = KvStep.build(shape.page, [70], [0], tables(1, 70, shape), [-1])
    q = cpu.append_kv(x, kv, step, no_rope(shape))
    out = cpu.attend(q, kv, step, 1.0)
    v = x[:, -shape.head_dim :].half().float()
    mean = v.cumsum(0) / torch.arange(1, 71)[:, None]
    torch.testing.assert_close(out[:, -shape.head_dim :], mean, rtol=1e-5, atol=1e-5)


def test_a_position_past_the_rope_table_is_refused() -> None:
    shape, cpu = Shape(), backend("cpu")
    kv = make_cache(Variant("fp16"), shape)
    short = Rope.table(torch.ones(shape.head_dim // 2), 4)
    step = KvStep.build(shape.page, [5], [0], [[0]], [-1])
    with pytest.raises(KernelError, match="RoPE table of 4"):
        cpu.append_kv(random_qkv(5, shape), kv, step, short)


def test_a_head_size_that_fits_no_vector_is_refused() -> None:
    shape, cpu = Shape(head_dim=12), backend("cpu")
    kv = make_cache(Variant("fp16"), shape)
    step = KvStep.build(shape.page, [1], [0], [[0]], [-1])
    with pytest.raises(KernelError, match="head size 12"):
        cpu.attend(torch.zeros(1, shape.query_heads, 12), kv, step, 1.0)
