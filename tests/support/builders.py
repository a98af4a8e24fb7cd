"""Tiny models, tokenizers and caches that tests build in milliseconds, in memory.

loaded = tiny_loaded(reference)                    # Llama, 2 layers, hidden 64
loaded = tiny_loaded(reference, "qwen2", eos_ids=frozenset({0, 2}))
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from engine.models import LoadedModel, ModelSpec, assemble
from engine.models.weights import Checkpoint, TensorInfo
from engine.text.pieces import byte_alphabet
from engine.text.tokenizer import Tokenizer
from kernels.contract import Operations
from kernels.layout import FORMATS, HP, LayerKv, PageLayout
from kernels.weights import RawWeight

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1, 2; bytes follow, then the merges."""
MERGES = [
    "Ġ t",
    "h e",
    "i n",
    "r e",
    "o n",
    "e r",
    "Ġ a",
    "Ġt he",
    "n d",
    "Ġa nd",
    "Ġ w",
    "o r",
    "l d",
]
TINY_VOCAB = len(SPECIAL) + 256 + len(MERGES)
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' "
    "+ message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


# --- tokenizer ---------------------------------------------------------------------


def tiny_inner() -> tokenizers.Tokenizer:
    """Byte-level BPE over SPECIAL, the 256 bytes and MERGES."""
    tokens = [*SPECIAL, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    pairs = [(left, right) for left, right in (merge.split(" ") for merge in MERGES)]
    inner = tokenizers.Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, pairs))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return inner


def tiny_tokenizer() -> Tokenizer:
    return Tokenizer(tiny_inner(), "<|im_start|>", "<|im_end|>", CHATML, "tiny")


# --- model -------------------------------------------------------------------------


def tiny_spec(family: str = "llama", **changes: Any) -> ModelSpec:
    """Small sizes with the family's own traits; `changes` are fields of ModelSpec."""
    spec = ModelSpec(
        name=f"tiny-{family}",
        architecture=family,
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        mlp=96,
        vocab=TINY_VOCAB,
        max_positions=256,
        norm_eps=1e-5,
        rope_theta=10_000.0,
        rope_scaling="none",
        rope_divisors=None,
        tied=False,
        qkv_bias=family == "qwen2",
        out_bias=False,
        qk_norm=family == "qwen3",
        bos=1,
        eos_ids=frozenset({2}),
    )
    return replace(spec, **changes)


def tiny_tensors(spec: ModelSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random float32 weights by Hugging Face name, scaled so that activations stay near 1."""
    random = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}

    def matrix(name: str, rows: int, cols: int) -> None:
        tensors[name] = torch.randn(rows, cols, generator=random) / cols**0.5

    def vector(name: str, size: int, around: float) -> None:
        tensors[name] = around + 0.1 * torch.randn(size, generator=random)

    matrix("model.embed_tokens.weight", spec.vocab, spec.hidden)
    vector("model.norm.weight", spec.hidden, 1.0)
    if not spec.tied:
        matrix("lm_head.weight", spec.vocab, spec.hidden)
    queries, keys = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    for i in range(spec.layers):
        at = f"model.layers.{i}."
        vector(at + "input_layernorm.weight", spec.hidden, 1.0)
        vector(at + "post_attention_layernorm.weight", spec.hidden, 1.0)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            matrix(f"{at}self_attn.{name}_proj.weight", rows, spec.hidden)
            if spec.qkv_bias:
                vector(f"{at}self_attn.{name}_proj.bias", rows, 0.0)
            if spec.qk_norm and name != "v":
                vector(f"{at}self_attn.{name}_norm.weight", spec.head_dim, 1.0)
        matrix(at + "self_attn.o_proj.weight", spec.hidden, queries)
        if spec.out_bias:
            vector(at + "self_attn.o_proj.bias", spec.hidden, 0.0)
        matrix(at + "mlp.gate_proj.weight", spec.mlp, spec.hidden)
        matrix(at + "mlp.up_proj.weight", spec.mlp, spec.hidden)
        matrix(at + "mlp.down_proj.weight", spec.hidden, spec.mlp)
    return tensors


class MemoryCheckpoint(Checkpoint):
    """Tensors in memory, read like those of a file."""

    def __init__(self, spec: ModelSpec, tensors: dict[str, torch.Tensor]) -> None:
        self.path = Path("memory")
        self.spec = spec
        self._data = tensors
        self.tensors = {n: TensorInfo(n, "F32", tuple(t.shape)) for n, t in tensors.items()}

    @property
    def files(self) -> list[Path]:
        return []

    def tokenizer(self) -> Tokenizer:
        return tiny_tokenizer()

    def read(self, info: TensorInfo) -> RawWeight:
        tensor = self._data[info.name]
        return RawWeight.dense(tensor.reshape(-1, tensor.shape[-1]))


def tiny_loaded(
    ops: Operations, family: str = "llama", seed: int = 0, device: str = "cpu", **changes: Any
) -> LoadedModel:
    """A random model of `family` on the backend `ops`, with `tiny_tokenizer`.

    The same family, seed and changes always give the same weights. `eos_ids` always has 2,
    the tokenizer's own; further changes are fields of ModelSpec.
    """
    spec = tiny_spec(family, **changes)
    checkpoint = MemoryCheckpoint(spec, tiny_tensors(spec, seed))
    return assemble(checkpoint, ops, tiny_tokenizer(), f"{spec.name}-{seed}", device=device)


# --- cache -------------------------------------------------------------------------


def make_layout(spec: ModelSpec, fmt: str = "fp16", page_tokens: int = 16) -> PageLayout:
    return PageLayout(FORMATS[fmt], spec.kv_heads, spec.head_dim, page_tokens)


def make_kv(
    layout: PageLayout, layers: int, pages: int, slabs: int = 1, scratch: int = 8
) -> list[LayerKv]:
    """Zeroed cache of every layer; all layers share one scratch, as in the engine."""
    block = (layout.kv_heads, 2, layout.block_elements)
    shared = torch.zeros(scratch, *block, dtype=HP)
    open_slabs = slabs if layout.fmt.open_page else 0
    return [
        LayerKv(
            layout,
            torch.zeros(pages, layout.kv_heads, layout.head_bytes, dtype=torch.uint8),
            torch.zeros(open_slabs, *block, dtype=HP),
            shared,
            torch.full((layout.kv_heads, layout.outliers), -1, dtype=torch.int32),
        )
        for _ in range(layers)
    ]
