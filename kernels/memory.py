"""Main memory in huge pages, for what a step reads from all over: weights and KV pages.

With pages of 4 KiB, finding where a byte lies costs more than reading it, on virtual machines
above all. Linux gives pages of 2 MiB to mappings that ask for them (MADV_HUGEPAGE), as far as
it has them; elsewhere this is memory like any other.
"""

from __future__ import annotations

import math
import mmap
import threading

import torch

ALIGN = 64
CHUNK = 32 << 20
"""Small pieces share mappings of this size; a larger piece has its own."""

_lock = threading.Lock()
_chunk: torch.Tensor | None = None
"""What is left of the newest shared mapping."""


def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on the CPU, aligned to 64 bytes. Its memory is taken when it is first written.

    A shared mapping is given back when the last of its pieces is gone.
    """
    global _chunk
    size = math.prod(shape) * dtype.itemsize
    room = -(-size // ALIGN) * ALIGN
    if room == 0:
        return torch.zeros(shape, dtype=dtype)
    if room >= CHUNK:
        return _mapping(room)[:size].view(dtype).view(shape)
    with _lock:
        if _chunk is None or len(_chunk) < room:
            _chunk = _mapping(CHUNK)
        piece, _chunk = _chunk[:size], _chunk[room:]
    return piece.view(dtype).view(shape)


def take(piece: torch.Tensor) -> None:
    """Have the memory of a contiguous piece of zeros now, not when it is first written."""
    piece.view(torch.uint8).view(-1)[:: mmap.PAGESIZE] = 0


def _mapping(size: int) -> torch.Tensor:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
