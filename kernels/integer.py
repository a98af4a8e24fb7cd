"""Products of integers, in plain torch: what `compute` other than f32 means, to the bit.

    y = Σ blocks d · (scale · Σ q·u + Σ kept x·u)  [+ m · (scale · Σ q + Σ kept x)]

x becomes whole numbers q of −127…127 (8 bits) or −32767…32767 (16) with a float32 scale for each
row and block of 32 columns; W stays the integers u, scales d and lowest values m of its file. Sums
inside a block are exact. Rounded is one chain of float32: a multiply-add for each block (two where
there is an m), in order of k. So a row's result depends on that row alone.

Columns that stand out would take the resolution from the others of their block. Those that a
calibration names are kept in float and are zero in q; their block adds them one after another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.weights import BLOCK, RawWeight, Rounding

LEAST = 2.0**-100
"""A block of x whose largest value is below counts as zero: 32767 over it may not be finite."""


@dataclass(frozen=True)
class IntegerWeight:
    """A quantised matrix [N, K] in its integers; B = K / 32."""

    values: torch.Tensor
    """float32 [N, B, 32]: whole numbers, −128…127."""
    scale: torch.Tensor
    """float32 [N, B]"""
    lowest: torch.Tensor | None
    """float32 [N, B] for q4_1."""
    bits: int
    """Of q."""
    kept: torch.Tensor
    """int64 [n]: columns of x that stay in float, ascending."""
    nbytes: int
    """Of the file's blocks."""

    @classmethod
    def of(cls, weight: RawWeight, rounding: Rounding) -> IntegerWeight:
        values, scale, lowest = weight.parts()
        kept = torch.tensor(rounding.columns(weight), dtype=torch.int64)
        return cls(values, scale, lowest, rounding.bits, kept, weight.nbytes)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """float32 [T, K]: exactly the values that the file means."""
        dense = self.values[ids] * self.scale[ids].unsqueeze(-1)
        if self.lowest is not None:
            dense += self.lowest[ids].unsqueeze(-1)
        return dense.flatten(1)


def linear(
    x: torch.Tensor,
    weight: IntegerWeight,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `kernels.contract.Operations.linear`."""
    q, scale, sums = quantise_rows(x, weight.bits, weight.kept)
    y = x.new_zeros(len(x), len(weight.values))
    for b in range(q.shape[1]):
        whole = (q[:, b].double() @ weight.values[:, b].double().T).float()  # rounded here alone
        part, total = whole * scale[:, b, None], sums[:, b, None]
        for column in weight.kept[weight.kept // BLOCK == b].tolist():
            part = fused(weight.values[:, b, column % BLOCK], x[:, column, None], part)
            total = total + x[:, column, None]
        y = fused(weight.scale[:, b], part, y)
        if weight.lowest is not None:
            y = fused(weight.lowest[:, b], total, y)
    if bias is not None:
        y = y + bias
    return y if residual is None else residual.copy_(y + residual)


def quantise_rows(
    x: torch.Tensor, bits: int, kept: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [T, K] -> q [T, B, 32], their scales [T, B] and scale · Σ q [T, B], all float32.

    A block with something that is no number, or infinite, has a scale that is so too.
    """
    blocks = x.index_fill(1, kept, 0.0).view(len(x), x.shape[1] // BLOCK, BLOCK)
    largest = blocks.abs().amax(-1)
    usable = (largest >= LEAST) & largest.isfinite()
    most = torch.tensor(2.0 ** (bits - 1) - 1)  # a tensor: torch divides scalars by a reciprocal
    up = torch.where(usable, most / largest, 0.0).unsqueeze(-1)
    q = torch.where(usable.unsqueeze(-1), (blocks * up).round(), 0.0)
    scale = largest / most
    return q, scale, q.sum(-1) * scale


def fused(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a · b + c in float32, rounded once, as a multiply-add of hardware.

    In float64 the product is exact and the sum may be off by half a bit of 53. Where it is, it
    becomes the neighbour whose last bit is odd: so the rounding to 24 bits is that of the true sum.
    """
    product, addend = a.double() * b.double(), c.double()
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(torch.int64)
    away = torch.where((error > 0) == (total > 0), 1, -1)
    to_odd = (error.abs() > 0) & (bits & 1 == 0)
    return torch.where(to_odd, bits + away, bits).view(torch.float64).float()
