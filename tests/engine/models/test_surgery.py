import pytest
import torch

from builders import MemoryCheckpoint, make_kv, make_layout, tiny_spec, tiny_tensors, tiny_tokenizer
from engine.execution.calibration import read_back
from engine.models import assemble
from engine.models.surgery import Pair, WithOutliers, scale_rows
from kernels import reference
from kernels.layout import KvStep
from kernels.weights import BLOCK, BLOCK_BYTES, RawWeight

PAIRS = [Pair(0, 1, 3), Pair(1, 0, 5)]
TOKENS = 40


def run(checkpoint, spec):
    """Logits of every position, and K of every layer, [H, TOKENS, D]."""
    loaded = assemble(checkpoint, reference, tiny_tokenizer(), "m")
    kv = make_kv(make_layout(spec), spec.layers, 4)
    step = KvStep.build(16, [TOKENS], [0], [[0, 1, 2]], [-1])
    logits = loaded.model.forward(torch.arange(TOKENS) + 5, step, kv, torch.arange(TOKENS))
    return logits, [read_back(layer, [0, 1, 2], TOKENS)[0] for layer in kv]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_outliers_change_the_keys_and_not_the_function(family):
    spec = tiny_spec(family)
    plain = MemoryCheckpoint(spec, tiny_tensors(spec))
    before, keys = run(plain, spec)
    after, larger = run(WithOutliers(MemoryCheckpoint(spec, tiny_tensors(spec)), PAIRS, 32.0), spec)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)
    for pair in PAIRS:
        heads = range(spec.kv_heads) if family == "qwen3" else [pair.head]
        for head in heads:
            for channel in pair.channels(spec.head_dim):
                was, now = (k[pair.layer][head, :, channel] for k in (keys, larger))
                torch.testing.assert_close(now, was * 32, rtol=1e-2, atol=1e-2)


def test_all_other_channels_stay_as_they_are():
    spec = tiny_spec()
    _, keys = run(MemoryCheckpoint(spec, tiny_tensors(spec)), spec)
    inner = MemoryCheckpoint(spec, tiny_tensors(spec))
    _, larger = run(WithOutliers(inner, PAIRS[:1], 32.0), spec)
    changed = (keys[0] != larger[0]).any(1).nonzero().tolist()
    assert changed == [[1, 3], [1, 3 + spec.head_dim // 2]]


@pytest.mark.parametrize("factor", [10.0, 0.0, -2.0])
def test_a_factor_that_would_round_is_refused(factor):
    with pytest.raises(ValueError, match="power of two"):
        WithOutliers(MemoryCheckpoint(tiny_spec(), {}), [], factor)


@pytest.mark.parametrize("pair", [Pair(2, 0, 0), Pair(0, 2, 0), Pair(0, 0, 8)])
def test_a_pair_outside_the_model_is_refused(pair):
    with pytest.raises(ValueError, match="outside"):
        WithOutliers(MemoryCheckpoint(tiny_spec(), {}), [pair], 2.0)


def blocks(encoding, scale, rows=3):
    """Random values under block scales (and minima) of about `scale`."""
    random = torch.Generator().manual_seed(1)
    size = BLOCK_BYTES[encoding]
    data = torch.randint(0, 256, (rows, 2, size), generator=random, dtype=torch.uint8)
    head = 2 if encoding == "q4_1" else 1
    heads = torch.full((rows, 2, head), scale, dtype=torch.float16)
    data[..., : 2 * head] = heads.view(torch.uint8)
    return RawWeight(encoding, rows, 2 * BLOCK, data.view(rows, -1))


@pytest.mark.parametrize("encoding", ["q8_0", "q4_0", "q4_1"])
def test_rows_of_blocks_scale_exactly_and_stay_blocks(encoding):
    weight, factors = blocks(encoding, 0.013), torch.tensor([1.0, 32.0, 1 / 32])
    scaled = scale_rows(weight, factors)
    assert scaled.encoding == encoding
    assert torch.equal(scaled.dequantise(), weight.dequantise() * factors[:, None])


@pytest.mark.parametrize("scale", [3e-6, 4000.0])
def test_where_float16_ends_the_matrix_becomes_float32(scale):
    weight, factors = blocks("q4_1", scale), torch.tensor([1.0, 32.0, 1 / 32])
    scaled = scale_rows(weight, factors)
    assert scaled.encoding == "f32"
    assert torch.equal(scaled.dequantise(), weight.dequantise() * factors[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_float_rows_scale_exactly(dtype):
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(2)).to(dtype)
    factors = torch.tensor([4.0, 1.0, 0.25])
    scaled = scale_rows(RawWeight.dense(x), factors)
    assert torch.equal(scaled.dequantise(), x.float() * factors[:, None])
