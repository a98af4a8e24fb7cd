"""What is not a number stays none, in C as in the reference.

One NaN or infinity in a layer must reach whatever depends on it: stored as a number it would be
served as text. And it must reach nothing else: other sequences and earlier rows stay as they are.
"""

from __future__ import annotations

import pytest
import torch

from kernels import reference
from kernels.contract import Operations
from kv_builders import (
    VARIANTS,
    Shape,
    Variant,
    backend,
    chunks_of,
    feed,
    make_cache,
    no_rope,
    random_qkv,
    stored,
    tables,
)

SHAPE = Shape(group=2)
LENGTH = 2 * SHAPE.page + 5
BAD = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf}
WHERE = {"q": 0, "k": SHAPE.group * 2, "v": SHAPE.group * 2 + SHAPE.kv_heads}
"""First head of each in a row of qkv."""
KEEPS = [v for v in VARIANTS if "static" not in v.fmt and "tensor" not in v.fmt]
"""A fixed scale has no room for a NaN; there the clipped values count it."""


def damaged(part: str, bad: float, row: int) -> torch.Tensor:
    x = random_qkv(LENGTH, SHAPE)
    x[row, WHERE[part] * SHAPE.head_dim + 2] = bad
    return x


def run(ops: Operations, variant: Variant, x: torch.Tensor, size: int) -> torch.Tensor:
    kv = make_cache(variant, SHAPE, tokens=LENGTH)
    return feed(ops, kv, [x], [chunks_of(LENGTH, size)], SHAPE, no_rope(SHAPE))[0]


@pytest.mark.parametrize("row", [3, SHAPE.page - 1, SHAPE.page, LENGTH - 1])
@pytest.mark.parametrize("part", WHERE)
@pytest.mark.parametrize("variant", KEEPS, ids=str)
@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_every_result_that_depends_on_a_nan_is_none(
    kind: str, variant: Variant, part: str, row: int
) -> None:
    """Attention of one head: a query's own row alone, K and V from that row on."""
    x = damaged(part, torch.nan, row)
    heads = slice(0, 1) if part == "q" else slice(0, SHAPE.group)
    affected = slice(row, row + 1) if part == "q" else slice(row, None)
    for size in (1, 7, LENGTH):
        out = run(backend(kind), variant, x, size).view(LENGTH, -1, SHAPE.head_dim)
        odd = out.isnan().any(-1)
        assert odd[affected, heads].all()
        if kind == "cpu":  # the reference multiplies masked weights of zero by NaN
            odd[affected, heads] = False
            assert not odd.any()


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("part", ["k", "v"])
@pytest.mark.parametrize("variant", KEEPS, ids=str)
def test_stored_pages_are_as_odd_as_those_of_the_reference(
    variant: Variant, part: str, bad: float
) -> None:
    """Sealed or written in place, with scales per channel or token, zeros and outlier planes."""
    (table,) = tables(1, LENGTH, SHAPE)
    sealed = LENGTH // SHAPE.page * SHAPE.page
    finite = []
    for ops in (backend("cpu"), reference):
        kv = make_cache(variant, SHAPE, tokens=LENGTH)
        feed(ops, kv, [damaged(part, bad, 5)], [chunks_of(LENGTH, 9)], SHAPE, no_rope(SHAPE))
        finite.append([x.isfinite() for x in stored(kv, table, sealed)])
    for mine, theirs in zip(*finite, strict=True):
        assert torch.equal(mine, theirs)
    assert not finite[0][part == "v"].all()


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v not in KEEPS], ids=str)
def test_a_fixed_scale_counts_a_nan_as_clipped(variant: Variant) -> None:
    clipped = []
    for ops in (backend("cpu"), reference):
        for bad in (torch.nan, 0.0):
            kv = make_cache(variant, SHAPE, tokens=LENGTH)
            feed(ops, kv, [damaged("k", bad, 5)], [[LENGTH]], SHAPE, no_rope(SHAPE))
            assert kv.saturated is not None
            clipped.append(int(kv.saturated[1]))
    # The rotation spreads it over its pair of channels.
    assert clipped[0] == clipped[1] + 2 == clipped[2] == clipped[3] + 2


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("n", [1, 7, 16, 37, 601])
def test_row_operations_keep_it_in_its_row(n: int, bad: float) -> None:
    cpu, x = backend("cpu"), torch.randn(3, 2 * n)
    for at in {0, n // 2, n - 1}:
        odd = x.clone()
        odd[1, at] = bad
        weight = torch.ones(2 * n)
        for mine, theirs in (
            (cpu.rms_norm(odd, weight, 1e-5), reference.rms_norm(odd, weight, 1e-5)),
            (cpu.silu_mul(odd), reference.silu_mul(odd)),
        ):
            assert torch.equal(mine.isfinite(), theirs.isfinite())
        assert cpu.argmax(odd)[1][1] == reference.argmax(odd)[1][1]


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("encoding", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"])
def test_a_product_keeps_it_in_its_row(encoding: str, rows: int) -> None:
    from kernels.weights import BLOCK_BYTES, FLOAT, RawWeight

    cpu = backend("cpu")
    if encoding in FLOAT:
        raw = RawWeight.dense(torch.randn(21, 64).to(FLOAT[encoding]))
    else:
        size = 2 * BLOCK_BYTES[encoding]
        raw = RawWeight(encoding, 21, 64, torch.randint(0, 60, (21, size), dtype=torch.uint8))
    x = torch.randn(rows, 64)
    x[rows // 2, 33] = torch.nan
    out = cpu.linear(x, cpu.pack(raw))
    assert out[rows // 2].isnan().all()
    assert out.isnan().any(1).sum() == 1
