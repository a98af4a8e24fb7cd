"""Which columns of the rows that a matrix multiplies stand out: products of integers keep them."""

from __future__ import annotations

from typing import Any

import torch

LISTED = 64
"""Columns of one product in a calibration; `outlier_columns` says how many of them are kept."""


class ColumnEnergy:
    """Each column's share of the squares of its row, summed over rows, for every product."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}

    def see(self, name: str, x: torch.Tensor) -> None:
        """Rows x [T, K] of product `name`. A row counts for one, however large it is: the first
        token of a text is larger than all others by far, and in other columns."""
        squares = x.double().square()
        shares = squares / squares.sum(-1, keepdim=True).clamp_min(1e-300)
        self._sums[name] = self._sums.get(name, 0.0) + shares.sum(0).cpu()

    def columns(self) -> dict[str, tuple[int, ...]]:
        """Of every product the LISTED largest, the largest first."""
        return {
            name: tuple(sums.topk(min(LISTED, len(sums))).indices.tolist())
            for name, sums in self._sums.items()
        }


def columns_of(row: Any) -> tuple[int, ...]:
    """As a file has them. ValueError, TypeError."""
    found = tuple(int(column) for column in row)
    if min(found, default=0) < 0:
        raise ValueError(f"columns {found} are below 0")
    return found
