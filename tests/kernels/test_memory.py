"""Memory in huge pages: what it gives must be zero, aligned, apart, and given back."""

import subprocess
import sys

import torch

from kernels.memory import ALIGN, CHUNK, take, zeros


def test_pieces_are_zero_aligned_and_apart():
    pieces = [zeros((n,), torch.uint8) for n in (1, 63, 64, 65, 4096, CHUNK - 1, CHUNK + 1)]
    for number, piece in enumerate(pieces, 1):
        assert piece.data_ptr() % ALIGN == 0
        assert not piece.any()
        piece.fill_(number)
    assert [int(p.max()) for p in pieces] == [int(p.min()) for p in pieces] == [*range(1, 8)]


def test_shapes_and_types():
    assert zeros((2, 3), torch.float16).shape == (2, 3)
    assert zeros((0, 3), torch.float32).numel() == 0
    assert zeros((5,), torch.float32).dtype is torch.float32


ALONE = """
import gc, psutil, torch
from kernels.memory import CHUNK, take, zeros

process = psutil.Process()
before = process.memory_info().rss
grown = lambda: (process.memory_info().rss - before) / CHUNK
room = zeros((8 * CHUNK,), torch.uint8)
assert grown() < 1, grown()
take(room[: 4 * CHUNK])
assert 3 < grown() < 5, grown()
room.fill_(1)
assert grown() > 7, grown()
half = room[: CHUNK // 2]
del room
gc.collect()
assert grown() > 7, grown()
del half
gc.collect()
assert grown() < 1, grown()
"""


def test_memory_is_taken_when_written_and_given_back_with_the_last_piece():
    """In a process of its own: what other tests leave behind comes and goes."""
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_is_taken_stays_zero():
    piece = zeros((3, CHUNK // 2), torch.int16)
    take(piece)
    assert not piece.any()
