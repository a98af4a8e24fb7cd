"""C kernels for the CPU, `kernels.contract.Operations`.

Importing builds nothing; `prepare()` does, so that a missing compiler shows at start and
not in the middle of a request.
"""

from __future__ import annotations

import torch

from kernels.cpu import rowwise
from kernels.cpu.decoder import stack
from kernels.cpu.gemm import embed, linear, pack
from kernels.cpu.kv import append_kv, attend, misfit
from kernels.cpu.rowwise import argmax, rms_norm, silu_mul
from kernels.weights import RawWeight

name = "cpu"

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


def prepare() -> None:
    """Build what every model needs. Raises BuildError."""
    rowwise.library()
    linear(torch.ones(1, 32), pack(RawWeight.dense(torch.ones(16, 32))))
