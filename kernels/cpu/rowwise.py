"""RMSNorm, SiLU gating and the largest of a row, of the CPU backend."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from kernels.cpu import native
from kernels.cpu.build import load
from kernels.cpu.native import FLOAT, POINTER, SIZE, floats, team
from kernels.errors import KernelError


@cache
def library() -> ctypes.CDLL:
    """Built on first use. Raises BuildError."""
    loaded = load([native.source("rowwise.c")], {})
    loaded.rms_norm.argtypes = [POINTER, POINTER, FLOAT, POINTER, SIZE, SIZE, POINTER]
    loaded.silu_mul.argtypes = [POINTER, POINTER, SIZE, SIZE, POINTER]
    loaded.argmax.argtypes = [POINTER, POINTER, POINTER, SIZE, SIZE, POINTER]
    return loaded


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x, n = x.contiguous(), x.shape[-1]
    y = torch.empty_like(x)
    library().rms_norm(
        floats("x", x, tuple(x.shape)),
        floats("norm", weight.contiguous(), (n,)),
        eps,
        y.data_ptr(),
        x.numel() // n,
        n,
        team(),
    )
    return y


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate_up = gate_up.contiguous()
    rows, width = gate_up.shape
    if width % 2:
        raise KernelError(f"gate_up: {width} columns do not halve")
    y = torch.empty(rows, width // 2)
    library().silu_mul(
        floats("gate_up", gate_up, (rows, width)),
        y.data_ptr(),
        rows,
        width // 2,
        team(),
    )
    return y


def argmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """torch's own does not use vectors for it."""
    x = x.contiguous()
    rows, n = x.shape
    if not n:
        raise KernelError("argmax: a row without values has no largest")
    values, places = torch.empty(rows), torch.empty(rows, dtype=torch.int64)
    library().argmax(
        floats("x", x, (rows, n)),
        values.data_ptr(),
        places.data_ptr(),
        rows,
        n,
        team(),
    )
    return values, places
