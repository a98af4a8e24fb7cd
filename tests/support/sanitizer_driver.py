"""Runs C kernels in every format; started by test_sanitizers.py, not by pytest.

torch's tensors come from malloc, so the address sanitizer guards their very ends.
"""

from __future__ import annotations

import os
import sys

import torch

from kernels import cpu
from kernels.cpu import build, native, rowwise
from kernels.weights import BLOCK_BYTES, RawWeight, Rounding
from kv_builders import VARIANTS, Shape, feed, make_cache, random_qkv

os.environ.pop("LD_PRELOAD")  # the compiler need not be watched
build.FLAGS += ("-Og", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover")
# The address sanitizer sees these accesses itself, and a quarter of the build is saved.
build.FLAGS += ("-fno-sanitize=null,object-size",)
if "gcc" in build._compiler_version(build.find_compiler()).lower():
    # Checks are calls instead of code in line: the GEMM builds in a third of the time.
    build.FLAGS += ("--param=asan-instrumentation-with-call-threshold=0",)
SHAPE = Shape(page=32, head_dim=24, group=4)
CHUNKS = [[50, 1, 19], [3, 40, 27], [16, 16, 32]]


def weights() -> list[RawWeight]:
    """One of every encoding, 21 × 96: no whole number of panels."""
    dense = torch.randn(21, 96)
    blocks = {
        name: torch.randint(0, 60, (21, 3 * size), dtype=torch.uint8)
        for name, size in BLOCK_BYTES.items()
    }
    return [
        *(RawWeight.dense(dense.to(t)) for t in (torch.float32, torch.float16, torch.bfloat16)),
        *(RawWeight(name, 21, 96, data) for name, data in blocks.items()),
    ]


def kernels() -> None:
    decoder()
    cache()


def decoder() -> None:
    for n in (1, 5, 64, 601):
        cpu.rms_norm(torch.randn(3, n), torch.ones(n), 1e-5)
        cpu.silu_mul(torch.randn(40, 2 * n))
        cpu.argmax(torch.randn(3, n))
    for rows in (1, 7):
        for weight in weights():
            packed = cpu.pack(weight)
            cpu.linear(torch.randn(rows, weight.cols), packed, torch.ones(weight.rows))
            cpu.embed(packed, torch.arange(rows))
            if weight.encoding in BLOCK_BYTES:
                for rounding in (Rounding(8, (0, 40, 95)), Rounding(16)):
                    cpu.linear(torch.randn(rows, weight.cols), cpu.pack(weight, rounding))


def cache() -> None:
    for variant in VARIANTS:
        xs = [random_qkv(sum(chunks), SHAPE, seed=i) for i, chunks in enumerate(CHUNKS)]
        kv = make_cache(variant, SHAPE, sequences=3, tokens=80)
        feed(cpu, kv, xs, CHUNKS, SHAPE)


def overrun() -> None:
    """One value past the end of a row, told to C itself: Python's checks would refuse it."""
    x, y = torch.ones(64), torch.ones(65)
    address = y.data_ptr()
    rowwise.library().rms_norm(x.data_ptr(), address, 1e-5, address, 1, 65, native.team())


if __name__ == "__main__":
    {"kernels": kernels, "overrun": overrun}[sys.argv[1]]()
    print("done")
