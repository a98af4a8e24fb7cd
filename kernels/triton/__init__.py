"""Triton kernels for CUDA, `kernels.contract.Operations`.

Imported only when they are chosen: importing needs Triton, and `prepare` runs one kernel,
so that a broken installation shows at start and not in the middle of a request.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from kernels.contract import Decoder, Stack
from kernels.decoder import layer_by_layer
from kernels.errors import KernelError
from kernels.layout import LayerKv
from kernels.reference import argmax
from kernels.triton.append import append_kv
from kernels.triton.attention import attend
from kernels.triton.dense import embed, linear, pack
from kernels.triton.launch import is_interpreted, misfit
from kernels.triton.rowwise import rms_norm, silu_mul

name = "triton"

__all__ = [
    "append_kv",
    "argmax",
    "attend",
    "embed",
    "linear",
    "misfit",
    "name",
    "pack",
    "prepare",
    "rms_norm",
    "silu_mul",
    "stack",
]


def stack(decoder: Decoder, kv: Sequence[LayerKv]) -> Stack:
    return layer_by_layer(sys.modules[__name__], decoder, kv)


def prepare(device: torch.device | str) -> None:
    """Compile, launch and check one kernel. Whatever Triton raises passes through.

    Raises KernelError where the kernels could only be interpreted: on a GPU that would be a
    slow path nobody asked for, without one it is for tests.
    """
    if is_interpreted() and torch.device(device).type == "cuda":
        raise KernelError("TRITON_INTERPRET is set, so kernels would run in Python; unset it")
    if not is_interpreted() and torch.device(device).type != "cuda":
        raise KernelError(f"triton compiles for CUDA devices and this is {device}")
    x = torch.full((1, 32), 3.0, device=device)
    y = rms_norm(x, torch.ones(32, device=device), 0.0)
    if not torch.allclose(y, torch.ones_like(y), atol=1e-3):
        raise RuntimeError(f"a first kernel computed {y[0, 0].item()} for 1.0")
