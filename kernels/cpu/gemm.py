"""Weights packed for the panel GEMM in gemm.c, and the calls into it.

A packed weight keeps the bytes of its file: the matrix is re-laid, never converted, so
there is one copy and no further loss. Layouts are drawn at the top of gemm.c.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch

from kernels import memory, weights
from kernels.cpu import native
from kernels.cpu.native import INT, POINTER, SIZE, floats, optional_floats
from kernels.errors import KernelError
from kernels.weights import BLOCK, BLOCK_BYTES, RawWeight

PANEL = 16
"""Rows of the matrix per panel, as in gemm.c."""

ENCODINGS = (*weights.FLOAT, *BLOCK_BYTES)
"""In the order of the enum in gemm.c."""


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [rows, cols] in panels of 16 rows; the last one padded with zeros."""

    encoding: str
    rows: int
    cols: int
    data: torch.Tensor
    """uint8: the bytes of the file, rows rounded up to 16."""

    def __post_init__(self) -> None:
        wanted = -(-self.rows // PANEL) * PANEL * weights.row_bytes(self.encoding, self.cols)
        if self.data.nbytes != wanted or not self.data.is_contiguous():
            raise KernelError(
                f"weight [{self.rows}, {self.cols}] in {self.encoding}: {self.data.nbytes} bytes "
                f"are packed, {wanted} are needed"
            )

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


def pack(weight: RawWeight) -> PackedWeight:
    """Raises KernelError for an encoding or a width that has no layout."""
    if weight.encoding not in ENCODINGS:
        raise KernelError(f"encoding {weight.encoding!r} is not one of {', '.join(ENCODINGS)}")
    if weight.encoding in BLOCK_BYTES and weight.cols % BLOCK:
        raise KernelError(f"{weight.encoding} needs columns in blocks of {BLOCK}: {weight.cols}")
    if weight.encoding in weights.FLOAT and weight.cols % 2:
        weight = RawWeight.dense(weight.dequantise())  # 16-bit columns are kept in pairs
    row = weights.row_bytes(weight.encoding, weight.cols)
    if weight.nbytes != weight.rows * row:
        raise KernelError(
            f"weight [{weight.rows}, {weight.cols}] in {weight.encoding} has {weight.nbytes} "
            f"bytes, {weight.rows * row} are needed"
        )
    raw = weight.data.contiguous()
    packed = memory.zeros((-(-weight.rows // PANEL) * PANEL * row,), torch.uint8)
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
    """A row's result does not depend on the other rows or on the threads, to the bit."""
    rows = x.shape[0]
    y = torch.empty(rows, weight.rows) if residual is None else residual
    room, threads = scratch(rows, weight.cols), torch.get_num_threads()
    failed = library().evewatch_linear(
        ENCODINGS.index(weight.encoding),
        floats("x", x, (rows, weight.cols)),
        weight.data.data_ptr(),
        optional_floats("bias", bias, (weight.rows,)),
        optional_floats("residual", residual, (rows, weight.rows)),
        y.data_ptr(),
        room.data_ptr(),
        len(room),
        rows,
        weight.rows,
        weight.cols,
        threads,
    )
    native.demand("linear", failed)
    return y


def scratch(rows: int, cols: int) -> torch.Tensor:
    """float32 room that all threads of a product of x [rows, cols] need."""
    return torch.empty(torch.get_num_threads() * library().evewatch_linear_scratch(rows, cols))


def embed(weight: PackedWeight, tokens: torch.Tensor) -> torch.Tensor:
    """Raises KernelError for a token that is not a row."""
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


@cache
def library() -> ctypes.CDLL:
    """Built on first use. Raises BuildError."""
    codes = [*range(len(ENCODINGS)), PANEL, BLOCK, *BLOCK_BYTES.values()]
    loaded = native.library(("gemm.c",), {}, codes)
    loaded.evewatch_pack.argtypes = [INT, POINTER, POINTER, SIZE, SIZE, INT]
    loaded.evewatch_linear.argtypes = [INT, *[POINTER] * 6, *[SIZE] * 4, INT]
    loaded.evewatch_linear_scratch.argtypes = [SIZE] * 2
    loaded.evewatch_linear_scratch.restype = SIZE
    loaded.evewatch_embed.argtypes = [INT, *[POINTER] * 3, *[SIZE] * 3, INT]
    return loaded
