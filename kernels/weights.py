"""Weights as a file stores them, and the RoPE table: what a backend packs or reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernels.errors import KernelError

BLOCK = 32
"""Values per block of the quantised encodings."""

BLOCK_BYTES = {"q8_0": 34, "q4_0": 18, "q4_1": 20}
"""Bytes per block: q8_0 = f16 d + 32 i8; q4_0 = f16 d + 16 nibble pairs; q4_1 adds f16 m.
Nibble pair i holds value i in its low half and value i + 16 in its high half."""

FLOAT = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def row_bytes(encoding: str, cols: int) -> int:
    """Bytes of one row of a matrix; `cols` are whole blocks."""
    if encoding in FLOAT:
        return cols * FLOAT[encoding].itemsize
    return cols // BLOCK * BLOCK_BYTES[encoding]


@dataclass(frozen=True)
class RawWeight:
    """A matrix [rows, cols] in the encoding of its file."""

    encoding: str
    """f32 | f16 | bf16 | q8_0 | q4_0 | q4_1"""
    rows: int
    cols: int
    data: torch.Tensor
    """Float encodings: [rows, cols] of that dtype. Quantised: uint8 [rows, bytes per row]."""

    @classmethod
    def dense(cls, x: torch.Tensor) -> RawWeight:
        """From a float tensor [rows, cols]."""
        encoding = {dtype: name for name, dtype in FLOAT.items()}[x.dtype]
        return cls(encoding, x.shape[0], x.shape[1], x)

    @classmethod
    def concat(cls, parts: list[RawWeight]) -> RawWeight:
        """Rows of several matrices under one another; mixed encodings become float32."""
        encodings = {part.encoding for part in parts}
        if len(encodings) > 1:
            return cls.dense(torch.cat([part.dequantise() for part in parts]))
        rows = sum(part.rows for part in parts)
        data = torch.cat([part.data for part in parts])
        return cls(encodings.pop(), rows, parts[0].cols, data)

    @property
    def nbytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    def dequantise(self) -> torch.Tensor:
        """float32 [rows, cols]: exactly the values that the file means."""
        if self.encoding in FLOAT:
            return self.data.float()
        values, scale, lowest = self.parts()
        values *= scale.unsqueeze(-1)
        if lowest is not None:
            values += lowest.unsqueeze(-1)
        return values.flatten(1)

    def parts(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Of a quantised matrix, B = cols / 32: whole numbers [rows, B, 32], scales [rows, B] and
        (q4_1) lowest values [rows, B], all float32."""
        blocks = self._blocks().numpy()
        scale = torch.from_numpy(blocks[..., :2].copy().view(np.float16).astype(np.float32))
        lowest = None
        if self.encoding == "q8_0":
            values = blocks[..., 2:].view(np.int8).astype(np.float32)
        else:
            packed = blocks[..., -16:]
            values = np.concatenate((packed & 15, packed >> 4), axis=-1).astype(np.float32)
            if self.encoding == "q4_0":
                values -= 8
            else:
                lowest = torch.from_numpy(
                    blocks[..., 2:4].copy().view(np.float16).astype(np.float32)
                )
        return (
            torch.from_numpy(values),
            scale.squeeze(-1),
            None if lowest is None else lowest.squeeze(-1),
        )

    def _blocks(self) -> torch.Tensor:
        """uint8 [rows, blocks, bytes of a block]"""
        return self.data.reshape(self.rows, self.cols // BLOCK, BLOCK_BYTES[self.encoding])

    def to_q8_0(self) -> RawWeight:
        """A float matrix in blocks of 32 whole numbers with a float16 scale.

        As it is, where a row is no whole number of blocks or a value has no room in them.
        """
        if self.encoding not in FLOAT or self.cols % BLOCK:
            return self
        blocks = self.data.float().reshape(self.rows, -1, BLOCK)
        scale = (blocks.abs().amax(-1, keepdim=True) / 127).half()
        if not scale.isfinite().all():
            return self
        wide = scale.float()
        values = torch.where(wide > 0, blocks / wide, 0.0).round().clamp(-127, 127).to(torch.int8)
        data = torch.cat((scale.view(torch.uint8), values.view(torch.uint8)), dim=-1)
        return RawWeight("q8_0", self.rows, self.cols, data.flatten(1))


@dataclass(frozen=True)
class Rounding:
    """Products of integers: how the rows that a quantised matrix multiplies are rounded."""

    bits: int = 8
    """Of a number: 8 or 16."""
    kept: Sequence[int] = ()
    """Columns that stay in float."""

    def columns(self, weight: RawWeight) -> list[int]:
        """`kept`, ascending. Raises KernelError where the matrix has no such products."""
        if weight.encoding not in BLOCK_BYTES:
            raise KernelError(f"products of integers need quantised weights, not {weight.encoding}")
        if self.bits not in (8, 16):
            raise KernelError(f"products of integers have 8 or 16 bits, not {self.bits}")
        columns = sorted(set(self.kept))
        if columns and not 0 <= columns[0] <= columns[-1] < weight.cols:
            raise KernelError(f"kept columns: expected some of 0…{weight.cols - 1}, got {columns}")
        return columns


@dataclass(frozen=True)
class Rope:
    """cos and sin of every position, float32 [positions, D/2]."""

    cos: torch.Tensor
    sin: torch.Tensor

    @classmethod
    def table(cls, inv_freq: torch.Tensor, positions: int) -> Rope:
        """From D/2 inverse frequencies (scaling already applied)."""
        angle = torch.outer(torch.arange(positions, dtype=torch.float64), inv_freq.double())
        return cls(angle.cos().float(), angle.sin().float())

    def require(self, positions: int) -> None:
        """Raises KernelError where the table has fewer."""
        if positions > self.cos.shape[0]:
            raise KernelError(
                f"position {positions - 1} is past the RoPE table of {self.cos.shape[0]}; "
                "build it for the longest context"
            )
