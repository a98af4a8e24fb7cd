"""A decoder from its first layer to its logits, written in a backend's operations.

A backend that can do better replaces `stack` (the CPU one makes one call into C of it); what
this file says is what it must compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from kernels.layout import KvStep, LayerKv
from kernels.weights import Rope

Stack = Callable[[torch.Tensor, KvStep, torch.Tensor], torch.Tensor]
"""x float32 [T, hidden] before the first layer, overwritten maybe; the step; int64 [R], rows of
x -> float32 [R, vocab], their logits. K and V of all rows are in the cache afterwards."""


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
    out_bias: torch.Tensor | None
    mlp_norm: torch.Tensor
    gate_up: Any
    """[2·mlp, hidden]: gate rows, then up rows."""
    down: Any


@dataclass(frozen=True)
class Decoder:
    """What a step runs through after the embedding."""

    layers: Sequence[DecoderLayer]
    norm: torch.Tensor
    """RMSNorm before the head."""
    head: Any
    """[vocab, hidden]."""
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
    """What `layer_by_layer` needs of a backend; `kernels.reference` says what each means."""

    def linear(
        self,
        x: torch.Tensor,
        weight: Any,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor: ...

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor: ...

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor: ...

    def append_kv(
        self,
        qkv: torch.Tensor,
        kv: LayerKv,
        step: KvStep,
        rope: Rope,
        q_norm: torch.Tensor | None = None,
        k_norm: torch.Tensor | None = None,
        eps: float = 1e-6,
    ) -> torch.Tensor: ...

    def attend(self, q: torch.Tensor, kv: LayerKv, step: KvStep, scale: float) -> torch.Tensor: ...


def layer_by_layer(ops: Operations, decoder: Decoder, kv: Sequence[LayerKv]) -> Stack:
    """The decoder on its caches, one LayerKv a layer."""
    rope, eps = decoder.rope, decoder.eps

    def run(x: torch.Tensor, step: KvStep, logit_rows: torch.Tensor) -> torch.Tensor:
        for layer, cache in zip(decoder.layers, kv, strict=True):
            qkv = ops.linear(ops.rms_norm(x, layer.attn_norm, eps), layer.qkv, layer.qkv_bias)
            q = ops.append_kv(qkv, cache, step, rope, layer.q_norm, layer.k_norm, eps)
            mixed = ops.attend(q, cache, step, decoder.scale)
            x = ops.linear(mixed, layer.out, layer.out_bias, residual=x)
            h = ops.linear(ops.rms_norm(x, layer.mlp_norm, eps), layer.gate_up)
            x = ops.linear(ops.silu_mul(h), layer.down, residual=x)
        if not len(logit_rows):
            return x.new_empty((0, decoder.vocab))
        return ops.linear(ops.rms_norm(x[logit_rows], decoder.norm, eps), decoder.head)

    return run
