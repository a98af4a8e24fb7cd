"""Triton's cache kernels against the reference: every format, odd lengths, every ratio.

Run by Triton's interpreter, so the shapes are small; test_triton_compile.py compiles them.
"""

from __future__ import annotations

import pytest
import torch

from kernels import reference
from kernels import triton as ours
from kernels.errors import KernelError
from kernels.layout import KvStep
from kernels.triton.attention import splits_for
from kernels.weights import Rope
from kv_builders import VARIANTS, Shape, Variant, generator, make_cache, no_rope, random_qkv, rope
from triton_builders import DEVICE, filled, moved, rope_there, same_bytes, step_there

tl = pytest.importorskip("triton.language")

G3 = Shape(page=16, head_dim=64, group=3, kv_heads=2)
G4 = Shape(page=32, head_dim=128, group=4, kv_heads=1)
G8 = Shape(page=16, head_dim=128, group=8, kv_heads=1)
G1 = Shape(page=32, head_dim=64, group=1, kv_heads=2)
LATE = {16: ([20, 1, 1], [9, 31, 85]), 32: ([37, 1, 1], [11, 63, 85])}
"""By page size: a chunk that carries its open page over and seals it, a row that fills a
page, a row with a partial page over several that are stored."""


def sizes(shape: Shape) -> str:
    return f"P{shape.page}-D{shape.head_dim}-G{shape.group}"


def check(variant: Variant, shape: Shape, rows: list[int], context: list[int]) -> None:
    """A step leaves the reference's bytes, and attention agrees in both product types.

    float32 products show that the algorithm is the same; float16 ones round every query,
    weight and scaled key to 11 bits, with errors that grow with the values they stand for.
    """
    theirs, step = filled(variant, shape, rows, context)
    kv, there = moved(theirs), step_there(step)
    x = random_qkv(sum(rows), shape, seed=99)
    q = reference.append_kv(x, theirs, step, no_rope(shape))
    mine = ours.append_kv(x.to(DEVICE), kv, there, rope_there(no_rope(shape)))
    assert torch.equal(mine.cpu(), q)
    assert same_bytes(kv, theirs)
    want = reference.attend(q, theirs, step, shape.scale)
    exact = ours.attend(mine, kv, there, shape.scale, dot=tl.float32)
    torch.testing.assert_close(exact.cpu(), want, rtol=2e-5, atol=5e-5)
    fast = ours.attend(mine, kv, there, shape.scale, splits=2)
    torch.testing.assert_close(fast.cpu(), want, rtol=2**-9, atol=2**-9 * want.abs().max().item())


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("shape", [G3, G4], ids=sizes)
def test_a_step_equals_the_reference(shape: Shape, variant: Variant) -> None:
    check(variant, shape, *LATE[shape.page])


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        (G8, Variant("fp16")),
        (G1, Variant("int8_channel", 4, True)),
        (G8, Variant("int8_channel", 4)),
        (G1, Variant("int8_token", 4)),
        (G8, Variant("int8_static")),
        (G8, Variant("k4v4")),
    ],
    ids=lambda x: sizes(x) if isinstance(x, Shape) else str(x),
)
def test_other_ratios_of_heads_equal_the_reference(shape: Shape, variant: Variant) -> None:
    check(variant, shape, *LATE[shape.page])


BATCHES = {
    "first token": ([1], [0]),
    "one row": ([1], [50]),
    "chunk of pages": ([50], [3]),
    "page exactly": ([16], [16]),
    "two chunks": ([18, 20], [0, 30]),
}


@pytest.mark.parametrize("fmt", ["int8_channel", "k4v4", "int8_token"])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_every_kind_of_batch_equals_the_reference(
    batch: tuple[list[int], list[int]], fmt: str
) -> None:
    check(Variant(fmt, 4), Shape(page=16, head_dim=16, group=3, kv_heads=1), *batch)


def test_more_sequences_than_are_looked_at_together() -> None:
    """The chunk's tiles come after those of 64 sequences."""
    shape, variant = Shape(page=16, head_dim=16, group=1, kv_heads=1), Variant("int8_channel")
    rows = [1] * 66 + [17]
    theirs, step = filled(variant, shape, rows, [0] * len(rows))
    kv, x = moved(theirs), random_qkv(sum(rows), shape, seed=2)
    reference.append_kv(x, theirs, step, no_rope(shape))
    ours.append_kv(x.to(DEVICE), kv, step_there(step), rope_there(no_rope(shape)))
    assert same_bytes(kv, theirs)


def test_more_shares_than_pages_leave_the_rest_empty() -> None:
    shape, variant = Shape(page=16, head_dim=16, group=2, kv_heads=1), Variant("int8_channel")
    kv, step = filled(variant, shape, [1, 1], [70, 2])
    x = random_qkv(2, shape, seed=5)
    q = reference.append_kv(x, kv, step, rope(shape))
    want = reference.attend(q, kv, step, shape.scale)
    got = ours.attend(q.to(DEVICE), moved(kv), step_there(step), shape.scale, tl.float32, splits=7)
    torch.testing.assert_close(got.cpu(), want, rtol=2e-5, atol=5e-5)


def test_norm_and_rotation_equal_the_reference() -> None:
    shape = G3
    theirs, step = filled(Variant("fp16"), shape, [19, 1], [5, 40])
    kv = moved(theirs)
    x, norms = random_qkv(20, shape, seed=4), torch.rand(2, 64, generator=generator(1)) + 0.5
    want = reference.append_kv(x, theirs, step, rope(shape), norms[0], norms[1], 1e-5)
    mine = norms.to(DEVICE)
    got = ours.append_kv(
        x.to(DEVICE), kv, step_there(step), rope_there(rope(shape)), mine[0], mine[1], 1e-5
    )
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=2e-6)
    k, other = (one.layout.view(one.pages.cpu(), "k").float() for one in (kv, theirs))
    torch.testing.assert_close(k, other, rtol=2**-10, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("fmt", ["fp16", "int8_channel", "int8_token"])
def test_rows_that_fill_up_a_batch_write_nothing_and_change_nothing(fmt: str) -> None:
    """A row without slab and page, as graphs of fixed batch sizes have them."""
    shape, variant = Shape(page=16, head_dim=16, group=2, kv_heads=1), Variant(fmt)
    theirs, step = filled(variant, shape, [1], [15])
    kv, x = moved(theirs), random_qkv(2, shape, seed=3)
    q = reference.append_kv(x[:1], theirs, step, no_rope(shape))
    padded = KvStep.build(16, [1, 1], [15, 0], [step.table[0].tolist(), []], [int(step.slab), -1])
    padded = step_there(padded)
    mine = ours.append_kv(x.to(DEVICE), kv, padded, rope_there(no_rope(shape)))
    assert same_bytes(kv, theirs)
    want = reference.attend(q, theirs, step, shape.scale)
    got = ours.attend(mine, kv, padded, shape.scale, splits=2)
    torch.testing.assert_close(got[:1].cpu(), want, rtol=2**-9, atol=2**-9)


@pytest.mark.parametrize("fmt", ["int8_channel", "k8v4"])
def test_values_far_below_one_keep_their_precision(fmt: str) -> None:
    """Scales of V fold into weights or values: tiny ones must not vanish in float16."""
    shape = Shape(page=16, head_dim=16, group=2, kv_heads=1)
    kv = make_cache(Variant(fmt), shape)
    x = random_qkv(40, shape, seed=8)
    x[:, -16:] *= 1e-4
    step = KvStep.build(16, [40], [0], [[3, 1, 2]], [0])
    q = reference.append_kv(x, kv, step, rope(shape))
    want = reference.attend(q, kv, step, shape.scale)
    got = ours.attend(q.to(DEVICE), moved(kv), step_there(step), shape.scale)
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=2**-9 * want.abs().max().item())


def test_large_and_equal_scores_are_averaged_right() -> None:
    """All keys alike, logits in the thousands: the mean of the values, no overflow."""
    shape = Shape(page=16, head_dim=16, group=3, kv_heads=2)
    x = random_qkv(70, shape)
    x[:, : -2 * 16] = 30.0
    kv = moved(make_cache(Variant("fp16"), shape))
    step = step_there(KvStep.build(16, [70], [0], [[4, 0, 2, 1, 3]], [-1]))
    q = ours.append_kv(x.to(DEVICE), kv, step, rope_there(no_rope(shape)))
    out = ours.attend(q, kv, step, 1.0)
    mean = x[:, -16:].half().float().cumsum(0) / torch.arange(1, 71)[:, None]
    torch.testing.assert_close(out[:, -16:].cpu(), mean, rtol=2**-9, atol=2**-9)


@pytest.mark.parametrize(
    ("programs", "longest", "shares"),
    [
        (1, 8192, 32),  # enough for every processor, none shorter than 256 tokens
        (1, 200_000, 64),  # never more than `combine` reads
        (144, 8192, 2),
        (1024, 8192, 1),  # the batch alone fills the GPU
        (1, 300, 1),  # too short to share
    ],
)
def test_a_row_is_split_when_the_batch_leaves_processors_idle(
    programs: int, longest: int, shares: int
) -> None:
    assert splits_for(programs, longest, processors=132) == shares


def test_what_no_tile_fits_is_refused() -> None:
    shape = Shape(head_dim=24)
    kv = moved(make_cache(Variant("fp16"), shape))
    step = step_there(KvStep.build(16, [1], [0], [[0]], [-1]))
    with pytest.raises(KernelError, match="head size 24"):
        ours.attend(torch.zeros(1, 6, 24, device=DEVICE), kv, step, 1.0)


def test_heads_that_do_not_divide_are_refused() -> None:
    shape = Shape(kv_heads=2)
    kv = moved(make_cache(Variant("fp16"), shape))
    step = step_there(KvStep.build(16, [1], [0], [[0]], [-1]))
    with pytest.raises(KernelError, match="5 query heads"):
        ours.attend(torch.zeros(1, 5, 16, device=DEVICE), kv, step, 1.0)


def test_a_position_past_the_rope_table_is_refused() -> None:
    shape = Shape()
    kv = moved(make_cache(Variant("fp16"), shape))
    short = rope_there(Rope.table(torch.ones(shape.head_dim // 2), 4))
    step = step_there(KvStep.build(shape.page, [5], [0], [[0]], [-1]))
    with pytest.raises(KernelError, match="RoPE table of 4"):
        ours.append_kv(random_qkv(5, shape).to(DEVICE), kv, step, short)
