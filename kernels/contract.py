"""The backend's contract: the operations of a decoder, and the decoder that they run.

`kernels.reference` is what each operation means, in plain torch; `kernels.cpu` and
`kernels.triton` are the same operations faster, and are tested against it. A module is a backend
when its functions are those of `Operations`.

T: rows of a step's batch. D: head size. Hq, H: query and KV heads. All activations are float32
and contiguous. Every operation raises KernelError for tensors that do not fit one another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from kernels.layout import KvStep, LayerKv, PageLayout
from kernels.weights import RawWeight, Rope, Rounding

Stack = Callable[[torch.Tensor, KvStep, torch.Tensor], torch.Tensor]
"""x [T, hidden] before the first layer, overwritten maybe; the step; int64 [R], rows of x
-> [R, vocab], their logits. K and V of all rows are in the cache afterwards."""


@dataclass(frozen=True)
class DecoderLayer:
    """Weights of one layer; matrices are handles of the backend, vectors float32."""

    attn_norm: torch.Tensor
    qkv: Any
    """[(Hq + 2H)·D, hidden]: query, key and value rows under one another."""
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: Any
    """[hidden, Hq·D]"""
    out_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: Any
    """[2·mlp, hidden]: gate rows, then up rows."""
    down: Any
    """[hidden, mlp]"""


@dataclass(frozen=True)
class Decoder:
    """What a step runs through after the embedding."""

    layers: Sequence[DecoderLayer]
    norm: torch.Tensor
    """RMSNorm before the head."""
    head: Any
    """[vocab, hidden]"""
    rope: Rope
    eps: float
    scale: float
    """Of the attention's scores."""
    vocab: int


@runtime_checkable
class Accounted(Protocol):
    """A Stack that counts what its time goes to."""

    def spent_ns(self) -> dict[str, int]:
        """Nanoseconds since it was made, by part."""


class Operations(Protocol):
    """One backend."""

    @property
    def name(self) -> str:
        """reference | cpu | triton"""

    def misfit(self, layout: PageLayout, query_heads: int) -> str | None:
        """Why these kernels cannot serve such a cache, in a few words; None if they can."""

    def pack(self, weight: RawWeight, rounding: Rounding | None = None) -> Any:
        """A matrix [N, K] as the other operations take it: the backend's own handle.

        `rounding`: products of it are of integers (kernels.integer); it must be quantised.
        `embed` is exact all the same.
        """

    def linear(
        self,
        x: torch.Tensor,
        weight: Any,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x [T, K] · weight [N, K]ᵀ (+ bias [N]) (+ residual [T, N]) -> [T, N].

        With `residual` the sum is written into it and it is returned.
        """

    def embed(self, weight: Any, tokens: torch.Tensor) -> torch.Tensor:
        """Rows of a packed [V, K] matrix: int64 tokens [T] -> [T, K]."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x [..., N] · weight [N] / sqrt(mean(x²) + eps) over the last dimension; a new tensor."""

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[T, 2I], gate then up -> silu(gate) · up, [T, I]."""

    def argmax(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x [R, N] -> each row's largest value [R], and int64 [R] where it is first.

        NaN is larger than any number.
        """

    def append_kv(
        self,
        qkv: torch.Tensor,
        kv: LayerKv,
        step: KvStep,
        rope: Rope,
        q_norm: torch.Tensor | None = None,
        k_norm: torch.Tensor | None = None,
        eps: float = 1e-6,
    ) -> torch.Tensor:
        """Split, normalise, rotate, write and seal one layer's new rows.

        qkv [T, (Hq + 2H)·D], query heads first. q_norm, k_norm: [D] (Qwen3) or None.
        Returns the rotated queries [T, Hq, D]; K and V are in the cache.
        """

    def attend(self, q: torch.Tensor, kv: LayerKv, step: KvStep, scale: float) -> torch.Tensor:
        """Causal attention of q [T, Hq, D] over the cache -> [T, Hq·D]."""

    def stack(self, decoder: Decoder, kv: Sequence[LayerKv]) -> Stack:
        """The decoder on its caches, one LayerKv a layer."""
