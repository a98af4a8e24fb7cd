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
    scale = hand_half_up(np.abs(x32 - zero).max() / np.float32(127))
    q = np.rint((x32 - zero) / scale)
    assert np.abs(q).max() <= 127
    return q.astype(np.float64) * float(scale) + float(zero)


def hand_half_up(wanted: np.float32) -> np.float32:
    """The smallest half that is not below."""
    scale = np.float16(wanted)
    if np.float32(scale) < wanted:
        scale = np.nextafter(scale, np.float16(np.inf))
    return np.float32(max(scale, np.float16(2.0**-24)))


def hand_finer(step: Array) -> Array:
    """In units of a scale: to the nearest sixteenth that four more bits can say."""
    code = np.rint(step)
    return np.clip(np.rint((step - code) * 16), -8, 7) / 16 + code


def hand_four(x: Array, finer: bool = False) -> Array:
    """x [values]: sixteen even steps from the lowest to the highest; `finer`: the first value."""
    x32 = x.astype(np.float32)
    scale = hand_half_up((x32.max() - x32.min()) / np.float32(15))
    step = (x32 - x32.min()) / scale
    code = np.rint(step)
    assert code.min() >= 0 and code.max() <= 15
    if finer:
        code[0] = hand_finer(step[:1])[0]
    return code.astype(np.float64) * float(scale) + float(x32.min())


def hand_group(x: Array, finer: bool = False) -> Array:
    """x [values]: sixteen even steps over a range that includes 0, which lies on a sixteenth."""
    x32 = x.astype(np.float32)
    low, high = min(x32.min(), np.float32(0)), max(x32.max(), np.float32(0))
    scale = hand_half_up((high - low) / np.float32(14.9375))
    shift = np.ceil(-16 * low / scale) / np.float32(16)
    step = x32 / scale + shift
    code = np.rint(step)
    assert 0 <= shift < 16 and code.min() >= 0 and code.max() <= 15
    if finer:
        code = hand_finer(step)
    return (code.astype(np.float64) - float(shift)) * float(scale)


def hand_groups(v: Array, first: bool) -> Array:
    """v [P, D]: every 32 channels of a token for themselves; `first`: the sequence's first page."""
    return np.array(
        [
            np.concatenate(
                [hand_group(row[i : i + 32], first and t == 0) for i in range(0, len(row), 32)]
            )
            for t, row in enumerate(v)
        ]
    )


def hand_static(x: Array, scale: Array) -> Array:
    q = np.rint(x.astype(np.float32) / scale.astype(np.float32))
    return np.clip(q, -127, 127).astype(np.float64) * scale


def stored_k(
    k: Array, variant: Variant, outliers: list[int], scale: Array | None, first: bool
) -> Array:
    """One page [P, D] of one head as its format stores it; `first`: of the sequence."""
    if variant.fmt == "fp16":
        return half(k)
    if scale is not None:
        return hand_static(k, scale)
    plain = half(k) if variant.open_page else k.copy()
    kept = plain[:, outliers].copy()
    plain[:, outliers] = 0
    if variant.fmt == "k4v4":
        plain = np.apply_along_axis(hand_four, 0, plain, first)
    else:
        along = 0 if variant.open_page else 1
        plain = np.apply_along_axis(hand_quantised, along, plain, variant.zero_point)
    plain[:, outliers] = half(kept)
    return plain


def stored_v(v: Array, variant: Variant, scale: Array | None, first: bool) -> Array:
    if variant.fmt == "fp16":
        return half(v)
    if scale is not None:
        return hand_static(v, scale)
    true = half(v) if variant.open_page else v
    if variant.fmt in ("k8v4", "k4v4"):
        return hand_groups(true, first)
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
                    first = start == 0
                    parts_k.append(stored_k(k[page, head], variant, outliers, scales[0], first))
                    parts_v.append(stored_v(v[page, head], variant, scales[1], first))
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
