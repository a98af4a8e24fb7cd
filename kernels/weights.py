"""Weights as a file stores them, and the RoPE table: what a backend packs or reads."""

from __future__ import annotations

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
        blocks = self.data.numpy().reshape(
            self.rows, self.cols // BLOCK, BLOCK_BYTES[self.encoding]
        )
        scale = blocks[..., :2].copy().view(np.float16).astype(np.float32)
        if self.encoding == "q8_0":
            values = blocks[..., 2:].view(np.int8).astype(np.float32) * scale
        else:
            packed = blocks[..., -16:]
            nibbles = np.concatenate((packed & 15, packed >> 4), axis=-1).astype(np.float32)
            if self.encoding == "q4_0":
                values = (nibbles - 8) * scale
            else:
                values = nibbles * scale + blocks[..., 2:4].copy().view(np.float16).astype(
                    np.float32
                )
        return torch.from_numpy(values.reshape(self.rows, self.cols))


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
