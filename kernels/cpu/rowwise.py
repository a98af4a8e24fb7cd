"""RMSNorm, SiLU gating and the largest of a row, of the CPU backend."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch

from kernels.cpu.build import load


@cache
def library() -> ctypes.CDLL:
    """Built on first use. Raises BuildError."""
    return load([Path(__file__).with_name("rowwise.c")], {})


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As `reference.rms_norm`."""
    x, weight = x.contiguous(), weight.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    library().rms_norm(
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_void_p(weight.data_ptr()),
        ctypes.c_float(eps),
        ctypes.c_void_p(y.data_ptr()),
        ctypes.c_int64(x.numel() // n),
        ctypes.c_int64(n),
        torch.get_num_threads(),
    )
    return y


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As `reference.silu_mul`."""
    gate_up = gate_up.contiguous()
    rows, n = gate_up.shape[0], gate_up.shape[1] // 2
    y = torch.empty(rows, n)
    library().silu_mul(
        ctypes.c_void_p(gate_up.data_ptr()),
        ctypes.c_void_p(y.data_ptr()),
        ctypes.c_int64(rows),
        ctypes.c_int64(n),
        torch.get_num_threads(),
    )
    return y


def argmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `reference.argmax`; torch's own does not use vectors for it."""
    x = x.contiguous()
    rows, n = x.shape
    values, places = torch.empty(rows), torch.empty(rows, dtype=torch.int64)
    library().argmax(
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_void_p(values.data_ptr()),
        ctypes.c_void_p(places.data_ptr()),
        ctypes.c_int64(rows),
        ctypes.c_int64(n),
        torch.get_num_threads(),
    )
    return values, places
