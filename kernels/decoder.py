"""A decoder from its first layer to its logits, written in a backend's operations.

A backend that can do better replaces `stack` (the CPU one makes one call into C of it); what
this file says is what it must compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels.contract import Decoder, Operations, Stack
from kernels.layout import KvStep, LayerKv

HEAD = "head"
"""The last product, in the names that `layer_by_layer` gives them."""


COMPUTE = ("f32", "int16", "mixed", "int8")
"""How a decoder's products may be taken."""
_WIDE = ("gate_up", "down")
"""The MLP's: their rounding to 8 bits changes most of what a model says (docs/quality.md)."""


def product_names(layer: int) -> tuple[str, str, str, str]:
    """Of a layer's products, in order: qkv, out, gate_up, down."""
    return f"{layer}.qkv", f"{layer}.out", f"{layer}.gate_up", f"{layer}.down"


def product_bits(compute: str, product: str) -> int | None:
    """Of a number in the rows of a named product, for one of COMPUTE; None: they stay floats."""
    if compute == "f32":
        return None
    return 16 if compute == "int16" or (compute == "mixed" and product.endswith(_WIDE)) else 8


def layer_by_layer(
    ops: Operations,
    decoder: Decoder,
    kv: Sequence[LayerKv],
    see: Callable[[str, torch.Tensor], None] = lambda name, x: None,
) -> Stack:
    """The decoder on its caches, one LayerKv a layer.

    `see` is given every product's name and its rows x [T, K], before it is taken.
    """
    rope, eps = decoder.rope, decoder.eps

    def linear(
        name: str,
        x: torch.Tensor,
        weight: Any,
        bias: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        see(name, x)
        return ops.linear(x, weight, bias, residual=residual)

    def run(x: torch.Tensor, step: KvStep, logit_rows: torch.Tensor) -> torch.Tensor:
        for i, (layer, cache) in enumerate(zip(decoder.layers, kv, strict=True)):
            qkv, out, gate_up, down = product_names(i)
            rows = linear(qkv, ops.rms_norm(x, layer.attn_norm, eps), layer.qkv, layer.qkv_bias)
            q = ops.append_kv(rows, cache, step, rope, layer.q_norm, layer.k_norm, eps)
            mixed = ops.attend(q, cache, step, decoder.scale)
            x = linear(out, mixed, layer.out, layer.out_bias, residual=x)
            h = linear(gate_up, ops.rms_norm(x, layer.mlp_norm, eps), layer.gate_up)
            x = linear(down, ops.silu_mul(h), layer.down, residual=x)
        if not len(logit_rows):
            return x.new_empty((0, decoder.vocab))
        return linear(HEAD, ops.rms_norm(x[logit_rows], decoder.norm, eps), decoder.head)

    return run
