"""Both backends against dense attention over the true values, quantised by hand here."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
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
    no_rope,
    outlier_channels,
    random_qkv,
    rope,
    split_qkv,
)

Array = npt.NDArray[np.float64]
SHAPES = [Shape(), Shape(page=32, head_dim=64, group=1)]


def half(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float64)


def hand_quantised(x: Array, zero_point: bool) -> Array:
    """x [values]: symmetric int8 under the smallest half scale that clips nothing."""
    x32 = x.astype(np.float32)
    zero = np.float32(0)
    if zero_point:
        zero = np.float32(np.float16((x32.max() + x32.min()) / np.float32(2)))
    wanted = np.abs(x32 - zero).max() / np.float32(127)
    scale = np.float16(wanted)
    if np.float32(scale) < wanted:
        scale = np.nextafter(scale, np.float16(np.inf))
    scale = max(scale, np.float16(2.0**-24))
    q = np.rint((x32 - zero) / np.float32(scale))
    assert np.abs(q).max() <= 127
    return q.astype(np.float64) * float(scale) + float(zero)


def hand_static(x: Array, scale: Array) -> Array:
    q = np.rint(x.astype(np.float32) / scale.astype(np.float32))
    return np.clip(q, -127, 127).astype(np.float64) * scale


def stored_k(k: Array, variant: Variant, outliers: list[int], scale: Array | None) -> Array:
    """One page [P, D] of one head as its format stores it."""
    if variant.fmt == "fp16":
        return half(k)
    if scale is not None:
        return hand_static(k, scale)
    plain = half(k) if variant.fmt == "int8_channel" else k.copy()
    kept = plain[:, outliers].copy()
    plain[:, outliers] = 0
    along = 0 if variant.fmt == "int8_channel" else 1
    plain = np.apply_along_axis(hand_quantised, along, plain, variant.zero_point)
    plain[:, outliers] = half(kept)
    return plain


def stored_v(v: Array, variant: Variant, scale: Array | None) -> Array:
    if variant.fmt == "fp16":
        return half(v)
    if scale is not None:
        return hand_static(v, scale)
    true = half(v) if variant.fmt == "int8_channel" else v
    return np.apply_along_axis(hand_quantised, 1, true, variant.zero_point)


def attention_of(q: Array, k: Array, v: Array, scale: float) -> Array:
    logits = k @ q * scale
    weight = np.exp(logits - logits.max())
    return weight @ v / weight.sum()


def expected(x: torch.Tensor, variant: Variant, shape: Shape) -> Array:
    """[L, Hq·D], position by position, head by head."""
    kv = make_cache(variant, shape)
    q, k, v = (part.double().numpy() for part in split_qkv(x, shape))
    lanes = outlier_channels(variant, shape).tolist()
    out = np.zeros_like(q)
    for head in range(shape.kv_heads):
        scales = [
            None if s is None else s[head].double().numpy() for s in (kv.k_static, kv.v_static)
        ]
        outliers = [c for c in lanes[head] if c >= 0]
        for t in range(len(x)):
            own = t // shape.page * shape.page
            parts_k, parts_v = [], []
            for start in range(0, own + 1, shape.page):
                page = slice(start, min(start + shape.page, t + 1))
                if variant.open_page and start == own:
                    parts_k.append(half(k[page, head]))
                    parts_v.append(half(v[page, head]))
                else:
                    parts_k.append(stored_k(k[page, head], variant, outliers, scales[0]))
                    parts_v.append(stored_v(v[page, head], variant, scales[1]))
            keys, values = np.concatenate(parts_k), np.concatenate(parts_v)
            for g in range(head * shape.group, (head + 1) * shape.group):
                out[t, g] = attention_of(q[t, g], keys, values, shape.scale)
    return out.reshape(len(x), -1)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
@pytest.mark.parametrize("shape", SHAPES, ids=["P16", "P32"])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_attention_is_dense_attention_over_what_the_format_keeps(
    kind: str, shape: Shape, variant: Variant
) -> None:
    length = 3 * shape.page + 5
    x = random_qkv(length, shape, seed=3)
    kv = make_cache(variant, shape, tokens=length)
    (out,) = feed(backend(kind), kv, [x], [chunks_of(length, 21)], shape, no_rope(shape))
    np.testing.assert_allclose(out.numpy(), expected(x, variant, shape), atol=2e-5)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_rope_and_norm_follow_their_formulas(kind: str) -> None:
    """The rotated queries that append_kv returns, from complex numbers and float64."""
    shape = Shape()
    x = random_qkv(9, shape, seed=5)
    kv = make_cache(Variant("fp16"), shape)
    step = KvStep.build(shape.page, [9], [4], [[0, 1]], [-1])
    weight = torch.linspace(0.5, 2.0, shape.head_dim)
    got = backend(kind).append_kv(x, kv, step, rope(shape), weight, weight.flip(0), 1e-5)

    def turned(part: torch.Tensor, weight: torch.Tensor) -> Array:
        y = part.double().numpy()
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5) * weight.double().numpy()
        half_dim = shape.head_dim // 2
        angle = np.outer(np.arange(4, 13), 1 / 10_000 ** (np.arange(half_dim) / half_dim))
        z = (y[..., :half_dim] + 1j * y[..., half_dim:]) * np.exp(1j * angle)[:, None]
        return np.concatenate((z.real, z.imag), axis=-1)

    q, k, _ = split_qkv(x, shape)
    np.testing.assert_allclose(got.numpy(), turned(q, weight), atol=2e-5)
    page_k = kv.layout.view(kv.pages, "k")[0].permute(2, 0, 1)[4:13]
    np.testing.assert_allclose(
        page_k.float().numpy(), turned(k, weight.flip(0)), rtol=1e-3, atol=1e-3
    )
