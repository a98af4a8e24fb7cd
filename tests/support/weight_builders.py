"""Random matrices in every encoding of a file, and rows to multiply them by."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels.weights import BLOCK, BLOCK_BYTES, FLOAT, RawWeight


def random_weight(encoding: str, rows: int, cols: int, seed: int = 0) -> RawWeight:
    rng = torch.Generator().manual_seed(seed)
    if encoding in FLOAT:
        return RawWeight.dense(torch.randn(rows, cols, generator=rng).to(FLOAT[encoding]))
    shape = (rows, cols // BLOCK)
    data = torch.randint(256, (*shape, BLOCK_BYTES[encoding]), dtype=torch.uint8, generator=rng)
    floats = 2 if encoding == "q4_1" else 1
    scales = torch.randn(*shape, floats, generator=rng) / 16
    data[..., : 2 * floats] = scales.half().view(torch.uint8)
    return RawWeight(encoding, rows, cols, data.flatten(1))


def random_rows(rows: int, cols: int) -> torch.Tensor:
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(1))


def by_threads(compute: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    """What comes out on 1, 2 and 3 threads."""
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(compute())
    finally:
        torch.set_num_threads(before)
    return results
