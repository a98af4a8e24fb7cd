"""Weights packed for the panel GEMM in gemm.c, and the calls into it.

A packed weight keeps the bytes of its file: the matrix is re-laid, never converted, so
there is one copy and no further loss. Layouts are drawn at the top of gemm.c.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from kernels import memory
from kernels.cpu import build
from kernels.errors import KernelError
from kernels.weights import BLOCK, FLOAT, RawWeight

SOURCE = Path(__file__).with_name("gemm.c")
PANEL = 16
"""Rows of the matrix per panel, as in gemm.c."""

ENCODINGS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")
"""In the order of the enum in gemm.c."""


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [rows, cols] in panels of 16 rows; the last one padded with zeros."""

    encoding: str
    rows: int
    cols: int
    data: torch.Tensor
    """uint8: the bytes of the file, rows rounded up to 16."""

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


def pack(weight: RawWeight) -> PackedWeight:
    """Raises KernelError for an encoding or a width that has no layout."""
    if weight.encoding not in ENCODINGS:
        raise KernelError(f"encoding {weight.encoding!r} is not one of {', '.join(ENCODINGS)}")
    if weight.encoding not in FLOAT and weight.cols % BLOCK:
        raise KernelError(f"{weight.encoding} needs columns in blocks of {BLOCK}: {weight.cols}")
    if weight.encoding in FLOAT and weight.cols % 2:
        weight = RawWeight.dense(weight.dequantise())  # 16-bit columns are kept in pairs
    raw = weight.data.contiguous()
    panels = -(-weight.rows // PANEL)
    packed = memory.zeros((panels * PANEL * raw[0].nbytes,), torch.uint8)
    library().evewatch_pack(
        ENCODINGS.index(weight.encoding),
        raw.data_ptr(),
        packed.data_ptr(),
        weight.rows,
        weight.cols,
        torch.get_num_threads(),
    )
    return PackedWeight(weight.encoding, weight.rows, weight.cols, packed)


def linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """x [T, K] · weight [N, K]ᵀ (+ bias [N]) (+ residual [T, N]) -> [T, N], float32.

    A row's result does not depend on the other rows or on the threads, to the bit. With
    `residual` the sum is written into it and it is returned. Raises KernelError for a
    tensor that is not contiguous float32 of its shape.
    """
    rows = x.shape[0]
    y = torch.empty(rows, weight.rows) if residual is None else residual
    room = scratch(rows, weight.cols)
    library().evewatch_linear(
        ENCODINGS.index(weight.encoding),
        _floats("x", x, (rows, weight.cols)),
        weight.data.data_ptr(),
        None if bias is None else _floats("bias", bias, (weight.rows,)),
        None if residual is None else _floats("residual", residual, (rows, weight.rows)),
        y.data_ptr(),
        room.data_ptr(),
        rows,
        weight.rows,
        weight.cols,
        torch.get_num_threads(),
    )
    return y


def scratch(rows: int, cols: int) -> torch.Tensor:
    """float32 room that all threads of a product of x [rows, cols] need."""
    return torch.empty(torch.get_num_threads() * library().evewatch_linear_scratch(rows, cols))


def embed(weight: PackedWeight, tokens: torch.Tensor) -> torch.Tensor:
    """Rows of a packed [V, K] matrix: tokens [T] -> float32 [T, K].

    Raises KernelError for a token that is not a row.
    """
    wanted = tokens.to(torch.int64).contiguous()
    y = torch.empty(wanted.shape[0], weight.cols)
    failed = library().evewatch_embed(
        ENCODINGS.index(weight.encoding),
        weight.data.data_ptr(),
        wanted.data_ptr(),
        y.data_ptr(),
        wanted.shape[0],
        weight.rows,
        weight.cols,
        torch.get_num_threads(),
    )
    if failed:
        odd = [token for token in wanted.tolist() if not 0 <= token < weight.rows]
        raise KernelError(f"tokens must be in 0…{weight.rows - 1}: {odd[:8]}")
    return y


def _floats(name: str, x: torch.Tensor, shape: tuple[int, ...]) -> int:
    """Address of a tensor that C may read as contiguous float32."""
    if x.shape != shape or x.dtype != torch.float32 or not x.is_contiguous():
        raise KernelError(
            f"{name}: expected contiguous float32 {list(shape)}, "
            f"got {x.dtype} {list(x.shape)} with strides {x.stride()}"
        )
    return x.data_ptr()


@cache
def library() -> ctypes.CDLL:
    """Built on first use. Raises BuildError."""
    loaded = build.load([SOURCE], {})
    pointer, size = ctypes.c_void_p, ctypes.c_ssize_t
    loaded.evewatch_pack.argtypes = [ctypes.c_int, pointer, pointer, size, size, ctypes.c_int]
    loaded.evewatch_linear.argtypes = [ctypes.c_int, *[pointer] * 6, *[size] * 3, ctypes.c_int]
    loaded.evewatch_linear_scratch.argtypes = [size] * 2
    loaded.evewatch_linear_scratch.restype = size
    loaded.evewatch_embed.argtypes = [ctypes.c_int, *[pointer] * 3, *[size] * 3, ctypes.c_int]
    return loaded
