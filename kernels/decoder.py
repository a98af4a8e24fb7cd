"""A decoder from its first layer to its logits, written in a backend's operations.

A backend that can do better replaces `stack` (the CPU one makes one call into C of it); what
this file says is what it must compute.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.contract import Decoder, Operations, Stack
from kernels.layout import KvStep, LayerKv


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
