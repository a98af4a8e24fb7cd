"""The decoder against a dense forward pass that shares no code with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import MemoryCheckpoint, make_kv, make_layout, tiny_spec, tiny_tensors
from engine.errors import ModelError
from engine.models import Llama, ModelSpec
from engine.models.keys import Keys
from engine.models.rope import scaling_of
from kernels import reference
from kernels.layout import KvStep

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tied": True}),
    "llama-biases": ("llama", {"qkv_bias": True, "out_bias": True}),
    "llama-one-kv-head": ("llama", {"heads": 6, "kv_heads": 1}),
    "llama-no-groups": ("llama", {"kv_heads": 4}),
    "llama3-scaled": (
        "llama",
        {
            "rope_scaling": "llama3",
            "rope_divisors": scaling_of(Keys("test", LLAMA3), 10_000.0, 16)[1],
        },
    ),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen3-wide-head": ("qwen3", {"head_dim": 32}),
}
TOKENS = torch.randint(3, 272, (41,), generator=torch.Generator().manual_seed(3))


def dense(spec: ModelSpec, w: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """Logits [T, vocab] of the whole sequence at once, in the plainest way.

    K and V are rounded to float16, as the cache does.
    """

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + spec.norm_eps).sqrt() * w[name]

    def project(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", torch.tensor(0.0))

    half = spec.head_dim // 2
    frequency = torch.tensor([spec.rope_theta ** (-i / half) for i in range(half)])
    if spec.rope_divisors:
        frequency = frequency / torch.tensor(spec.rope_divisors)
    turn = torch.polar(
        torch.ones(len(tokens), half), torch.arange(len(tokens))[:, None] * frequency
    )

    def rotate(x: torch.Tensor) -> torch.Tensor:
        y = torch.complex(x[:, :half], x[:, half:]) * turn
        return torch.cat((y.real, y.imag), dim=1)

    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(spec.layers):
        at = f"model.layers.{layer}."
        h = norm(x, at + "input_layernorm.weight")
        q, k, v = (project(h, f"{at}self_attn.{name}_proj") for name in "qkv")
        heads = []
        for head in range(spec.heads):
            mine = slice(head * spec.head_dim, (head + 1) * spec.head_dim)
            group = head // (spec.heads // spec.kv_heads)
            theirs = slice(group * spec.head_dim, (group + 1) * spec.head_dim)
            qh, kh, vh = q[:, mine], k[:, theirs], v[:, theirs].half().float()
            if spec.qk_norm:
                qh = norm(qh, at + "self_attn.q_norm.weight")
                kh = norm(kh, at + "self_attn.k_norm.weight")
            score = rotate(qh) @ rotate(kh).half().float().T / spec.head_dim**0.5
            future = torch.ones_like(score, dtype=torch.bool).triu(1)
            heads.append(score.masked_fill(future, -torch.inf).softmax(1) @ vh)
        x = x + project(torch.cat(heads, 1), at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm.weight")
        gate, up = project(h, at + "mlp.gate_proj"), project(h, at + "mlp.up_proj")
        x = x + project(gate * gate.sigmoid() * up, at + "mlp.down_proj")
    logits = "model.embed_tokens.weight" if spec.tied else "lm_head.weight"
    return norm(x, "model.norm.weight") @ w[logits].T


def in_chunks(
    model: Llama, tokens: torch.Tensor, chunks: list[int], fmt: str = "fp16"
) -> torch.Tensor:
    """Logits [T, vocab] through the paged cache, `chunks` tokens at a time, pages shuffled."""
    layout = make_layout(model.spec, fmt)
    table = [5, 2, 0, 4, 1, 3]
    kv = make_kv(layout, model.spec.layers, pages=len(table))
    logits, done = [], 0
    for count in chunks:
        step = KvStep.build(layout.page_tokens, [count], [done], [table], [0])
        part = tokens[done : done + count]
        logits.append(model.forward(part, step, kv, torch.arange(count)))
        done += count
    return torch.cat(logits)


def assert_same(logits: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for the order of sums, and for what that does to the float16 K and V.

    A K or V that lies between two float16 numbers may round either way: a few logits then
    differ by up to about one step (2⁻¹¹), hardly any do. Logits are around 1.
    """
    difference = (logits - expected).abs()
    assert difference.max() <= 1e-3
    assert difference.mean() <= 5e-5


def build(family: str, changes: dict[str, Any]) -> tuple[Llama, dict[str, torch.Tensor]]:
    spec = tiny_spec(family, **changes)
    tensors = tiny_tensors(spec, seed=1)
    return Llama.build(MemoryCheckpoint(spec, tensors), reference, spec.max_positions), tensors


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunks", [[41], [1] * 41, [16, 1, 17, 7]], ids=["whole", "one", "mixed"])
def test_logits_equal_dense_forward(case: str, chunks: list[int]) -> None:
    model, tensors = build(*CASES[case])
    assert_same(in_chunks(model, TOKENS, chunks), dense(model.spec, tensors, TOKENS))


@pytest.mark.parametrize("trait", ["qkv_bias", "qk_norm", "rope_divisors", "tied"])
def test_each_trait_changes_the_logits(trait: str) -> None:
    """Guards the test above: a trait that both sides ignored would pass it."""
    case = {
        "qkv_bias": "qwen2",
        "qk_norm": "qwen3-wide-head",
        "rope_divisors": "llama3-scaled",
        "tied": "llama-tied",
    }[trait]
    family, changes = CASES[case]
    model, tensors = build(family, changes)
    without = tiny_spec(family, **changes | {trait: None if trait == "rope_divisors" else False})
    plain = {n: t for n, t in tensors.items() if not n.endswith("proj.bias")}
    plain.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"].flip(0))
    difference = in_chunks(model, TOKENS, [41]) - dense(without, plain, TOKENS)
    assert difference.abs().max() > 0.05


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_int8_cache_gives_the_same_logits_for_any_chunks(sizes: list[int]) -> None:
    """The result depends on the tokens alone, never on how they were split."""
    model, _ = build("llama", {})
    total = min(sum(sizes), len(TOKENS))
    chunks: list[int] = []
    for size in sizes:
        chunks.append(min(size, total - sum(chunks)))
    chunks = [size for size in chunks if size]
    whole = in_chunks(model, TOKENS[:total], [total], "int8_channel")
    split = in_chunks(model, TOKENS[:total], chunks, "int8_channel")
    # A value between two int8 steps may round either way, as in assert_same.
    assert (whole - split).abs().max() <= 1e-2
    assert (whole - split).abs().mean() <= 5e-4


def test_batch_rows_do_not_touch_each_other() -> None:
    model, tensors = build("llama", {})
    layout = make_layout(model.spec)
    kv = make_kv(layout, model.spec.layers, pages=4)
    first, second = TOKENS[:20], TOKENS[20:29]
    step = KvStep.build(16, [20, 9], [0, 0], [[3, 1], [0, 0]], [0, 0])
    logits = model.forward(torch.cat((first, second)), step, kv, torch.tensor([28, 19]))
    expected = [dense(model.spec, tensors, part)[-1] for part in (second, first)]
    assert_same(logits, torch.stack(expected))


def test_no_logit_rows_still_fills_the_cache() -> None:
    model, tensors = build("llama", {})
    kv = make_kv(make_layout(model.spec), model.spec.layers, pages=1)
    first = KvStep.build(16, [5], [0], [[0]], [0])
    none = model.forward(TOKENS[:5], first, kv, torch.empty(0, dtype=torch.int64))
    assert none.shape == (0, model.spec.vocab)
    then = KvStep.build(16, [1], [5], [[0]], [0])
    logits = model.forward(TOKENS[5:6], then, kv, torch.tensor([0]))
    assert_same(logits[0], dense(model.spec, tensors, TOKENS[:6])[-1])


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones() -> None:
    _, divisors = scaling_of(Keys("test", LLAMA3), 10_000.0, 16)
    assert divisors is not None
    # Waves of 2π·10000^(i/8) positions: 6, 20, 63 … against 32/4 = 8 and 32/1 = 32.
    assert divisors[0] == 1.0
    assert 1.0 < divisors[1] < 8.0
    assert divisors[2:] == (8.0,) * 6


def test_linear_scaling_divides_all_frequencies() -> None:
    scaling = {"type": "linear", "factor": 4.0}
    assert scaling_of(Keys("test", scaling), 10_000.0, 16) == ("linear", (4.0,) * 8)


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"rope_type": "yarn", "factor": 4.0}, "'yarn' is not supported; supported: linear"),
        ({"rope_type": "llama3", "factor": 8.0}, "is missing"),
        ({"type": "linear"}, "is missing"),
    ],
)
def test_scaling_that_is_not_understood(scaling: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        scaling_of(Keys("config.json", scaling), 10_000.0, 16)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kv_heads": 3}, "4 query heads do not divide over 3"),
        ({"layers": 0}, "layers is 0"),
        ({"head_dim": 15}, "not even"),
        ({"rope_divisors": (1.0,) * 7}, "7 RoPE factors, head size 16 needs 8"),
    ],
)
def test_spec_refuses_sizes_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        tiny_spec(**changes)


def test_flops_count_every_matrix_twice() -> None:
    spec = tiny_spec(head_dim=32, tied=True)
    tensors = tiny_tensors(spec)
    matrices = sum(t.numel() for n, t in tensors.items() if t.ndim == 2 and "layers" in n)
    assert spec.flops_per_token == 2 * matrices
    assert spec.head_flops == 2 * tensors["model.embed_tokens.weight"].numel()
    both = 2 * sum(rows * cols for rows, cols in spec.gemm_shapes())
    assert both == spec.flops_per_token + spec.head_flops
