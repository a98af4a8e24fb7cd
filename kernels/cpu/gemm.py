"""Weights packed for the panel products of gemm.c and integer.c, and the calls into them.

A packed weight keeps the bytes of its file: the matrix is re-laid, never converted, so
there is one copy and no further loss. Layouts are drawn at the top of panels.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch

from kernels import memory, weights
from kernels.cpu import native
from kernels.cpu.native import INT, POINTER, SIZE, floats, optional_floats, team
from kernels.errors import KernelError
from kernels.weights import BLOCK, BLOCK_BYTES, RawWeight, Rounding

PANEL = 16
"""Rows of the matrix per panel, as in gemm.c."""

ENCODINGS = (*weights.FLOAT, *BLOCK_BYTES)
"""In the order of the enum in gemm.c."""


class WeightStruct(ctypes.Structure):
    """`Weight` of weight.h."""

    _fields_ = [
        *((n, SIZE) for n in ("encoding", "rows", "cols")),
        ("data", POINTER),
        *((n, SIZE) for n in ("bits", "kept")),
        ("columns", POINTER),
    ]


@dataclass(frozen=True)
class IntegerParts:
    """What products of integers need beside the panels."""

    bits: int
    """Of a number of x: 8 or 16."""
    columns: torch.Tensor
    """int32 [n], ascending: those that stay in float."""

    @classmethod
    def of(cls, weight: RawWeight, rounding: Rounding) -> IntegerParts:
        return cls(rounding.bits, torch.tensor(rounding.columns(weight), dtype=torch.int32))


@dataclass(frozen=True)
class PackedWeight:
    """A matrix [rows, cols] in panels of 16 rows; the last one padded with zeros."""

    encoding: str
    rows: int
    cols: int
    data: torch.Tensor
    """uint8: the bytes of the file, rows rounded up to 16."""
    integer: IntegerParts | None = None
    """None: products are of floats."""

    def __post_init__(self) -> None:
        wanted = _panels(self.rows) * PANEL * weights.row_bytes(self.encoding, self.cols)
        if self.data.nbytes != wanted or not self.data.is_contiguous():
            raise KernelError(
                f"weight [{self.rows}, {self.cols}] in {self.encoding}: {self.data.nbytes} bytes "
                f"are packed, {wanted} are needed"
            )

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @cached_property
    def struct(self) -> WeightStruct:
        """As C takes it; its addresses are of this object's tensors."""
        code = ENCODINGS.index(self.encoding)
        head = (code, self.rows, self.cols, self.data.data_ptr())
        if (parts := self.integer) is None:
            return WeightStruct(*head, 0, 0, None)
        return WeightStruct(*head, parts.bits, len(parts.columns), parts.columns.data_ptr())


def pack(weight: RawWeight, rounding: Rounding | None = None) -> PackedWeight:
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
    integer = None if rounding is None else IntegerParts.of(weight, rounding)
    packed = _in_panels(weight.encoding, weight.rows, weight.cols, weight.data, row)
    return PackedWeight(weight.encoding, weight.rows, weight.cols, packed, integer)


def _in_panels(
    encoding: str, rows: int, cols: int, data: torch.Tensor, row_bytes: int
) -> torch.Tensor:
    raw = data.contiguous()
    packed = memory.zeros((_panels(rows) * PANEL * row_bytes,), torch.uint8)
    library().evewatch_pack(
        ENCODINGS.index(encoding),
        raw.data_ptr(),
        packed.data_ptr(),
        rows,
        cols,
        team(),
    )
    return packed


def _panels(rows: int) -> int:
    return -(-rows // PANEL)


def linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """A row's result does not depend on the other rows or on the threads, to the bit."""
    y = torch.empty(x.shape[0], weight.rows) if residual is None else residual
    again(x, weight, y, bias, residual)()
    return y


def again(
    x: torch.Tensor,
    weight: PackedWeight,
    y: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> Callable[[], None]:
    """`linear` into y, for many times: what C is told is made and checked once. The tensors must
    outlive it."""
    rows, call = x.shape[0], library().evewatch_linear
    room, together = scratch(rows, [weight]), team()
    told = (
        ctypes.byref(weight.struct),
        floats("x", x, (rows, weight.cols)),
        optional_floats("bias", bias, (weight.rows,)),
        optional_floats("residual", residual, (rows, weight.rows)),
        floats("y", y, (rows, weight.rows)),
    )

    def product() -> None:
        native.demand("linear", call(*told, room.data_ptr(), len(room), rows, together))

    return product


def scratch(rows: int, weights: Sequence[PackedWeight]) -> torch.Tensor:
    """float32 room that each of these products of `rows` rows needs, by itself."""
    count, threads = library().evewatch_linear_scratch, torch.get_num_threads()
    return torch.empty(max(count(ctypes.byref(w.struct), rows, threads) for w in weights))


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
        team(),
    )
    if failed:
        odd = [token for token in wanted.tolist() if not 0 <= token < weight.rows]
        raise KernelError(f"tokens must be in 0…{weight.rows - 1}: {odd[:8]}")
    return y


@cache
def library() -> ctypes.CDLL:
    """Built on first use. Raises BuildError."""
    codes = [*range(len(ENCODINGS)), PANEL, BLOCK, *BLOCK_BYTES.values()]
    sources = ("gemm.c", "integer.c", "integer_rows.c")
    loaded = native.library(sources, {}, [*codes, ctypes.sizeof(WeightStruct)])
    loaded.evewatch_pack.argtypes = [INT, POINTER, POINTER, SIZE, SIZE, POINTER]
    loaded.evewatch_linear.argtypes = [*[POINTER] * 6, *[SIZE] * 2, POINTER]
    loaded.evewatch_linear_scratch.argtypes = [POINTER, SIZE, INT]
    loaded.evewatch_linear_scratch.restype = SIZE
    loaded.evewatch_embed.argtypes = [INT, *[POINTER] * 3, *[SIZE] * 3, POINTER]
    return loaded
