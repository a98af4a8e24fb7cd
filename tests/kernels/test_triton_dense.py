"""The Triton backend's weights and row-wise kernels, and a whole model on it."""

from __future__ import annotations

import pytest
import torch

from builders import tiny_loaded
from engine.models import LoadedModel
from kernels import reference
from kernels import triton as ours
from kernels.dispatch import select
from kernels.layout import FORMATS, HP, KvStep, LayerKv, PageLayout
from kernels.weights import BLOCK_BYTES, RawWeight
from kv_builders import generator
from triton_builders import DEVICE


def raw(encoding: str, rows: int = 48, cols: int = 64) -> RawWeight:
    g = generator(2)
    if encoding in BLOCK_BYTES:
        data = torch.randint(0, 255, (rows, cols // 32, BLOCK_BYTES[encoding]), generator=g)
        data = data.to(torch.uint8)
        data[..., 1:4:2] &= 0x1F  # the high bytes of scale and offset: small positive halves
        return RawWeight(encoding, rows, cols, data.flatten(1))
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[encoding]
    return RawWeight.dense(torch.randn(rows, cols, generator=g).to(dtype))


@pytest.mark.parametrize("encoding", ["f32", "f16", "bf16", "q8_0", "q4_1"])
def test_products_are_those_of_the_rounded_operands(encoding: str) -> None:
    """Both sides in 16 bits, the sum in float32."""
    weight = raw(encoding)
    packed = ours.pack(weight).to(DEVICE)
    assert packed.dtype == (torch.bfloat16 if encoding == "bf16" else torch.float16)
    x = torch.randn(5, 64, generator=generator(3))
    bias, residual = torch.randn(48, generator=generator(4)), torch.ones(5, 48)
    want = reference.linear(x, weight.dequantise(), bias) + residual
    into = residual.clone().to(DEVICE)
    got = ours.linear(x.to(DEVICE), packed, bias.to(DEVICE), into)
    assert got.data_ptr() == into.data_ptr()
    scale = (x.abs() @ weight.dequantise().abs().T).max().item()
    torch.testing.assert_close(
        got.cpu(), want, rtol=0, atol=2 ** (-8 if "b" in encoding else -10) * scale
    )
    tokens = torch.tensor([7, 0, 47])
    rows = ours.embed(packed, tokens.to(DEVICE)).cpu()
    torch.testing.assert_close(rows, weight.dequantise()[tokens], rtol=2**-11, atol=2**-24)


def test_an_activation_past_float16_saturates() -> None:
    packed = ours.pack(RawWeight.dense(torch.eye(32))).to(DEVICE)
    x = torch.full((1, 32), 1e6, device=DEVICE)
    assert ours.linear(x, packed).cpu().unique().tolist() == [65504.0]


@pytest.mark.parametrize("shape", [(1, 96), (3, 576), (7, 1)])
def test_rms_norm_equals_the_reference(shape: tuple[int, int]) -> None:
    x, weight = torch.randn(*shape, generator=generator(1)), torch.rand(shape[1]) + 0.5
    got = ours.rms_norm(x.to(DEVICE), weight.to(DEVICE), 1e-5)
    torch.testing.assert_close(got.cpu(), reference.rms_norm(x, weight, 1e-5))


@pytest.mark.parametrize("shape", [(1, 2), (3, 2 * 1536), (2, 2 * 1025)])
def test_silu_mul_equals_the_reference(shape: tuple[int, int]) -> None:
    x = torch.randn(*shape, generator=generator(1)) * 8
    torch.testing.assert_close(ours.silu_mul(x.to(DEVICE)).cpu(), reference.silu_mul(x))


def caches(loaded: LoadedModel, device: str) -> list[LayerKv]:
    layout = PageLayout(FORMATS["int8_channel"], loaded.spec.kv_heads, loaded.spec.head_dim)
    block = (loaded.spec.kv_heads, 2, layout.block_elements)
    pages = (4, loaded.spec.kv_heads, layout.head_bytes)
    return [
        LayerKv(
            layout,
            torch.zeros(pages, dtype=torch.uint8, device=device),
            torch.zeros((1, *block), dtype=HP, device=device),
            torch.zeros((4, *block), dtype=HP, device=device),
            torch.full((loaded.spec.kv_heads, 0), -1, dtype=torch.int32, device=device),
        )
        for _ in range(loaded.spec.layers)
    ]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_model_computes_the_reference_logits(family: str) -> None:
    """A chunk and two decode rows, through every operation of a backend."""
    tokens = torch.randint(3, 200, (20,), generator=generator(5))
    logits = []
    for picked, device in ((select("reference"), "cpu"), (select("triton", DEVICE), DEVICE)):
        loaded = tiny_loaded(picked.ops, family, device=device)
        run = loaded.model.on(caches(loaded, device))
        parts = []
        for start, stop in ((0, 18), (18, 19), (19, 20)):
            step = KvStep.build(16, [stop - start], [start], [[2, 0]], [0], device)
            rows = torch.arange(stop - start, device=device)
            parts.append(run(tokens[start:stop].to(device), step, rows).cpu())
        logits.append(torch.cat(parts))
    spread = logits[0].abs().max().item()
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=0.01 * spread)
