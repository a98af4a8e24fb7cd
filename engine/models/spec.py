"""What a decoder is, whatever file it came from: sizes, RoPE, special ids."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import ModelError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures that the decoder computes. SmolLM2 is a `llama`."""

MOST_POSITIONS = 1 << 22
"""A context beyond this is a damaged header: the RoPE table alone would not fit."""


@dataclass(frozen=True)
class ModelSpec:
    """Raises ModelError when the sizes cannot belong together."""

    name: str
    architecture: str
    """One of FAMILIES."""
    layers: int
    hidden: int
    heads: int
    """Query heads."""
    kv_heads: int
    head_dim: int
    mlp: int
    """Width of the gate and up projections."""
    vocab: int
    """Rows of the embedding; may be more than the tokenizer's ids."""
    max_positions: int
    """Longest context that the model computes as it was trained to."""
    norm_eps: float
    rope_theta: float
    rope_scaling: str
    """none | linear | llama3"""
    rope_divisors: tuple[float, ...] | None
    """D/2 numbers that the inverse frequencies are divided by; None without scaling."""
    tied: bool
    """The head is the embedding matrix."""
    qkv_bias: bool
    out_bias: bool
    qk_norm: bool
    """RMS norm over each head of Q and K (Qwen3)."""
    bos: int | None
    eos_ids: frozenset[int]
    """Ids that end an answer."""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "mlp", "vocab", "max_positions"):
            if getattr(self, name) < 1:
                raise ModelError(f"{self.name}: {name} is {getattr(self, name)}, must be positive")
        if self.max_positions > MOST_POSITIONS:
            raise ModelError(f"{self.name}: a context of {self.max_positions} is not believable")
        if not (0 < self.rope_theta < math.inf and 0 < self.norm_eps < 1):
            raise ModelError(
                f"{self.name}: RoPE base {self.rope_theta:g} or norm epsilon {self.norm_eps:g} "
                "is out of range"
            )
        if self.head_dim < 2 or self.head_dim % 2:
            raise ModelError(
                f"{self.name}: head size {self.head_dim} is not even, RoPE needs pairs"
            )
        if self.heads % self.kv_heads:
            raise ModelError(
                f"{self.name}: {self.heads} query heads do not divide over {self.kv_heads} KV heads"
            )
        if self.rope_divisors is not None and len(self.rope_divisors) != self.head_dim // 2:
            raise ModelError(
                f"{self.name}: {len(self.rope_divisors)} RoPE factors, "
                f"head size {self.head_dim} needs {self.head_dim // 2}"
            )
        if any(not 0 < divisor < math.inf for divisor in self.rope_divisors or ()):
            raise ModelError(f"{self.name}: a RoPE factor is not a positive number")
        odd = [i for i in (*self.eos_ids, self.bos or 0) if not 0 <= i < self.vocab]
        if odd:
            raise ModelError(f"{self.name}: token id {odd[0]} is not one of {self.vocab}")

    @property
    def layer_gemms(self) -> list[tuple[int, int]]:
        """[rows, cols] of one layer's matrices, as they are multiplied: QKV, out, gate-up, down."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return [
            (queries + 2 * keys, self.hidden),
            (self.hidden, queries),
            (2 * self.mlp, self.hidden),
            (self.hidden, self.mlp),
        ]

    def gemm_shapes(self) -> list[tuple[int, int]]:
        """[rows, cols] of every matrix that a forward pass multiplies by, the head last."""
        return self.layer_gemms * self.layers + [(self.vocab, self.hidden)]

    @property
    def flops_per_token(self) -> int:
        """GEMM FLOPs of one token through all layers, without head and attention scores."""
        return 2 * self.layers * sum(rows * cols for rows, cols in self.layer_gemms)

    @property
    def head_flops(self) -> int:
        """GEMM FLOPs of one row of logits."""
        return 2 * self.hidden * self.vocab

    def inverse_frequencies(self) -> list[float]:
        """D/2 RoPE frequencies in radians per position, scaling applied."""
        half = self.head_dim // 2
        divisors = self.rope_divisors or (1.0,) * half
        return [self.rope_theta ** (-i / half) / divisors[i] for i in range(half)]
