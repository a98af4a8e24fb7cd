"""What a page promises: bounded error, no clipping, immutability, its size."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import quantise
from kernels.errors import KernelError
from kernels.layout import FORMATS, HP, V_GROUP, LayerKv, PageLayout
from kv_builders import (
    DYNAMIC,
    Shape,
    Variant,
    backend,
    chunks_of,
    feed,
    generator,
    layout_of,
    make_cache,
    no_rope,
    random_qkv,
    split_qkv,
    steps,
    stored,
    tables,
)

SHAPE = Shape()
WIDE = Shape(head_dim=48)
"""A whole group of V and a part of one."""
KINDS = ["reference", "cpu"]
OPEN = [name for name, fmt in FORMATS.items() if fmt.open_page]
SYMMETRIC = [v for v in DYNAMIC if not v.zero_point]


def scale_of(kv: LayerKv, side: str, table: list[int], length: int) -> torch.Tensor:
    """Scale of every stored value: [H, length, D]."""
    scale = kv.layout.view(kv.pages, f"{side}_scale")[table].float()  # [n, H, D or P]
    covers = kv.layout.fmt.k_scale if side == "k" else kv.layout.fmt.v_scale
    p, d = kv.layout.page_tokens, kv.layout.head_dim
    if covers == "group":  # [n, H, groups, P]
        wide = scale.transpose(2, 3).repeat_interleave(V_GROUP, 3)[..., :d]
    elif covers == "channel":
        wide = scale.unsqueeze(2).expand(-1, -1, p, d)
    else:
        wide = scale.unsqueeze(3).expand(-1, -1, p, d)
    return wide.transpose(0, 1).flatten(1, 2)[:, :length]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1.0, 1e-6, 100.0], ids=["one", "tiny", "large"])
@pytest.mark.parametrize("variant", DYNAMIC, ids=str)
def test_an_error_is_at_most_half_a_scale(kind: str, size: float, variant: Variant) -> None:
    length, shape = 4 * WIDE.page, WIDE
    x = random_qkv(length, shape, seed=1) * size
    kv = make_cache(variant, shape, tokens=length)
    feed(backend(kind), kv, [x], [[length]], shape, no_rope(shape))
    (table,) = tables(1, length, shape)
    _, k, v = split_qkv(x, shape)
    for side, true, got in zip("kv", (k, v), stored(kv, table, length), strict=True):
        true = (true.to(HP).float() if variant.open_page else true).transpose(0, 1)
        slack = true.abs() * 2**-11 + 2.0**-25  # a zero or an outlier is rounded to hp
        assert ((got - true).abs() <= scale_of(kv, side, table, length) * 0.5001 + slack).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", SYMMETRIC, ids=str)
def test_the_largest_value_is_never_clipped(kind: str, variant: Variant) -> None:
    """Every value at the extreme: each must come back, up to rounding, at full size."""
    steps = {8: 127, 4: 15}
    length = SHAPE.page
    x = torch.full((length, SHAPE.qkv_width), 3.14159) * torch.linspace(0.1, 9.7, length)[:, None]
    kv = make_cache(variant, SHAPE, tokens=length)
    feed(backend(kind), kv, [x], [[length]], SHAPE, no_rope(SHAPE))
    (table,) = tables(1, length, SHAPE)
    top = x.max().to(HP).float()
    fmt = FORMATS[variant.fmt]
    for got, bits in zip(stored(kv, table, length), (fmt.k_bits, fmt.v_bits), strict=True):
        assert abs(float(got.max()) - float(top)) <= float(top) / steps[bits] / 1.9


@pytest.mark.parametrize("kind", KINDS)
def test_static_scales_clip_and_count(kind: str) -> None:
    kv = make_cache(Variant("int8_static"), SHAPE)
    x = torch.zeros(2, SHAPE.qkv_width)
    x[0, -SHAPE.head_dim :] = 1e3  # V of the last head, first token
    feed(backend(kind), kv, [x], [[2]], SHAPE, no_rope(SHAPE))
    assert kv.saturated is not None and kv.v_static is not None
    written = 2 * 2 * SHAPE.kv_heads * SHAPE.head_dim
    assert kv.saturated.tolist() == [written, SHAPE.head_dim]
    (table,) = tables(1, 2, SHAPE)
    _, v = stored(kv, table, 2)
    torch.testing.assert_close(v[-1, 0], kv.v_static[-1] * 127)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", OPEN)
def test_sealed_pages_never_change(kind: str, fmt: str) -> None:
    length, variant = 5 * SHAPE.page + 3, Variant(fmt, 4)
    kv = make_cache(variant, SHAPE, tokens=length)
    (table,) = tables(1, length, SHAPE)
    sizes = [1, 20, 11, 1, 1, 30, *[1] * 19]
    seals: dict[int, str] = {}
    done = 0
    for _, _, step in steps(
        backend(kind), kv, [random_qkv(length, SHAPE)], [sizes], SHAPE, no_rope(SHAPE)
    ):
        done += len(step.positions)
        for page in table[: done // SHAPE.page]:
            digest = hashlib.sha256(kv.pages[page].numpy().tobytes()).hexdigest()
            assert seals.setdefault(page, digest) == digest
    assert done == length and len(seals) == 5
    assert (kv.pages[table[5]] == 0xFF).all(), "the open page was written before it sealed"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", OPEN)
def test_no_prompt_length_is_worse_than_another(kind: str, fmt: str) -> None:
    """The token after prompts of 1 … 3P + 1: exact in the first page, then even."""
    run, page, longest = backend(kind), SHAPE.page, 3 * SHAPE.page + 1
    x = torch.randn(longest + 1, SHAPE.qkv_width, generator=generator(2))
    error = torch.zeros(longest + 1)
    for length in range(1, longest + 1):
        small, full = (
            feed(
                run,
                make_cache(Variant(name), SHAPE, tokens=length + 1),
                [x[: length + 1]],
                [[length, 1]],
                SHAPE,
            )[0][length]
            for name in (fmt, "fp16")
        )
        error[length] = (small - full).square().mean().sqrt()
    assert (error[1:page] < 1e-6).all()
    assert (error[page:] > 1e-4).all()
    assert error[page:].max() < 3 * error[page:].median()


@given(st.floats(0, 60_000, width=32))
def test_round_up_gives_the_smallest_half_not_below(value: float) -> None:
    x = torch.tensor([value])
    up = quantise.round_up_hp(x)
    assert up.float() >= x
    bits = up.view(torch.int16)
    if bits > 0:
        assert (bits - 1).view(HP).float() < x or value == 0


@pytest.mark.parametrize(
    ("head_dim", "page", "outliers", "saved"),
    [
        (64, 16, 0, 46.1),
        (64, 16, 4, 43.0),
        (64, 32, 4, 44.5),
        (64, 32, 8, 41.4),
        (128, 16, 0, 46.5),
        (128, 16, 4, 44.9),
        (128, 32, 4, 46.5),
        (128, 32, 8, 44.9),
    ],
)
def test_pages_cost_what_the_arithmetic_says(
    head_dim: int, page: int, outliers: int, saved: float
) -> None:
    layouts = [
        PageLayout(FORMATS[name], 3, head_dim, page, outliers) for name in ("fp16", "int8_channel")
    ]
    full, small = (
        torch.empty(10, lay.kv_heads, lay.head_bytes, dtype=torch.uint8).untyped_storage().nbytes()
        for lay in layouts
    )
    assert full == 10 * page * 3 * 4 * head_dim
    assert 100 * (1 - small / full) == pytest.approx(saved, abs=0.05)
    assert layouts[1].sealed_ratio == pytest.approx(small / full)
    per_head = head_dim + 2 * head_dim / page + 2 * outliers + head_dim + 2
    assert layouts[1].bytes_per_token == 3 * per_head


@pytest.mark.parametrize(
    ("fmt", "head_dim", "page", "outliers", "most"),
    [
        ("k8v4", 64, 32, 0, 0.42),
        ("k8v4", 64, 32, 4, 0.45),
        ("k8v4", 128, 32, 4, 0.44),
        ("k4v4", 64, 32, 0, 0.32),
        ("k4v4", 64, 32, 4, 0.35),
        ("k4v4", 128, 32, 4, 0.34),
    ],
)
def test_four_bits_cost_what_the_arithmetic_says(
    fmt: str, head_dim: int, page: int, outliers: int, most: float
) -> None:
    layout = PageLayout(FORMATS[fmt], 3, head_dim, page, outliers)
    k = head_dim + 2 * head_dim / page if fmt == "k8v4" else head_dim / 2 + 4 * head_dim / page
    v = head_dim / 2 + 3 * head_dim / 32
    first = head_dim / 2 / page * (1 if fmt == "k8v4" else 2)
    pages = torch.empty(10, 3, layout.head_bytes, dtype=torch.uint8)
    assert layout.bytes_per_token == 3 * (k + v + first + 2 * outliers)
    assert pages.nbytes == 10 * page * layout.bytes_per_token
    assert layout.sealed_ratio <= most


def test_an_uncalibrated_static_cache_is_refused() -> None:
    layout = layout_of(Variant("int8_static"), SHAPE)
    pages = torch.zeros(1, SHAPE.kv_heads, layout.head_bytes, dtype=torch.uint8)
    none = torch.zeros(0, SHAPE.kv_heads, 2, layout.block_elements, dtype=HP)
    with pytest.raises(KernelError, match="calibrate"):
        LayerKv(layout, pages, none, none, torch.zeros(SHAPE.kv_heads, 0, dtype=torch.int32))


def test_a_cache_of_another_layout_is_refused() -> None:
    kv = make_cache(Variant("int8_channel", 4), SHAPE)
    with pytest.raises(KernelError, match="kv pages"):
        LayerKv(kv.layout, kv.pages[:, :, :-32], kv.slabs, kv.scratch, kv.outliers)
    with pytest.raises(KernelError, match="kv outliers"):
        LayerKv(kv.layout, kv.pages, kv.slabs, kv.scratch, kv.outliers.long())


@pytest.mark.parametrize("kind", KINDS)
def test_outlier_channels_are_kept_in_hp(kind: str) -> None:
    length, variant = SHAPE.page, Variant("int8_token", 4)
    x = random_qkv(length, SHAPE)
    _, k, _ = split_qkv(x, SHAPE)
    k[:, 0, 1] *= 500.0
    kv = make_cache(variant, SHAPE, tokens=length)
    feed(backend(kind), kv, [x], [chunks_of(length, 5)], SHAPE, no_rope(SHAPE))
    (table,) = tables(1, length, SHAPE)
    got, _ = stored(kv, table, length)
    assert torch.equal(got[0, :, 1], k[:, 0, 1].to(HP).float())
    plain = torch.tensor(
        [c for c in range(SHAPE.head_dim) if c not in (1, 1 + SHAPE.head_dim // 2)]
    )
    assert (got[0][:, plain] - k[:, 0][:, plain]).abs().max() < 0.1
