"""The best GEMM rate of this machine on a model's own shapes: what a whole engine is held to.

A fraction of it is honest only if the denominator is: every GEMM at hand runs the same
shapes in the same process, prepacked for them if it can be, and the fastest one counts. All
compute in float32, as the engine does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch.nn import functional as F

from kernels.errors import BuildError
from kernels.weights import BLOCK, BLOCK_BYTES, FLOAT, RawWeight

ROWS = 256
"""Enough rows for arithmetic, not memory, to be the limit."""

BUDGET_S = 1.5
MIN_PASSES = 3
READ_BYTES = 64 << 20
"""Read again and again for the memory's rate: more than caches hold."""
READ_PASSES = 6

Shape = tuple[int, int]
Gemm = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class GemmRates:
    """GFLOP/s over the given shapes, each as often as it occurs."""

    rates: dict[str, float]
    """torch | onednn | panel -> rate; a GEMM that is not available is not in it."""

    @property
    def by(self) -> str:
        """Which GEMM is the fastest."""
        return max(self.rates, key=lambda name: self.rates[name])

    @property
    def best(self) -> float:
        """Its rate."""
        return self.rates[self.by]


def best_gemm_rate(
    shapes: list[Shape],
    m: int = ROWS,
    encoding: str = "f32",
    budget_s: float = BUDGET_S,
) -> GemmRates:
    """Times every GEMM on x [m, K] · W [N, K]ᵀ for all (N, K) of `shapes`, repeats counted.

    `encoding` is that of the panel GEMM's weights. The fastest of several passes counts;
    they take about `budget_s` seconds, more if MIN_PASSES of the shapes do not fit in it.
    Measured on a thread that ends with it, so that its OpenMP pool does not stay about and
    slow down the engine's.
    """
    with ThreadPoolExecutor(1) as own_thread:
        return own_thread.submit(_measure, shapes, m, encoding, budget_s).result()


@cache
def memory_read_rate() -> float | None:
    """Bytes a second that all threads together read from memory, the best of a few passes
    (about 50 ms); None without a compiler. Call it on the thread that computes."""
    import ctypes

    from kernels.cpu.build import load

    try:
        library = load([Path(__file__).parent / "cpu" / "peak.c"], {})
    except BuildError:
        return None
    data = torch.ones(READ_BYTES // 4)
    fastest = float("inf")
    for _ in range(READ_PASSES):
        start = time.perf_counter()
        library.read_all(
            ctypes.c_void_p(data.data_ptr()), ctypes.c_int64(len(data)), torch.get_num_threads()
        )
        fastest = min(fastest, time.perf_counter() - start)
    return READ_BYTES / fastest


def _measure(shapes: list[Shape], m: int, encoding: str, budget_s: float) -> GemmRates:
    counts = Counter(shapes)
    work = {shape: 2 * m * shape[0] * shape[1] * count for shape, count in counts.items()}
    seconds: dict[str, float] = {}
    for shape, count in counts.items():
        # Long products need few repeats, short ones are noisy: equal shares suit both.
        for name, fastest in _time(shape, m, encoding, budget_s / len(counts)).items():
            seconds[name] = seconds.get(name, 0.0) + count * fastest
    return GemmRates({name: sum(work.values()) / s / 1e9 for name, s in seconds.items()})


def candidates(weight: RawWeight, m: int) -> dict[str, Gemm]:
    """The GEMMs that can run here, each with its own copy of `weight` packed for m rows."""
    dense = weight.dequantise()
    found: dict[str, Gemm] = {"torch": lambda x: F.linear(x, dense)}
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        found["onednn"] = _onednn(dense, m)
    with suppress(BuildError):  # no compiler: the engine has no panel GEMM either
        found["panel"] = _panel(weight)
    return found


def _onednn(dense: torch.Tensor, m: int) -> Gemm:
    packed = torch.ops.mkldnn._reorder_linear_weight(dense, m)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def _panel(weight: RawWeight) -> Gemm:
    from kernels.cpu import gemm

    packed = gemm.pack(weight)
    return lambda x: gemm.linear(x, packed)


@torch.inference_mode()
def _time(shape: Shape, m: int, encoding: str, budget_s: float) -> dict[str, float]:
    """Seconds of each GEMM's fastest pass. They take turns, so a disturbance meets all."""
    rows, cols = shape
    x = torch.randn(m, cols)
    gemms = candidates(_random(encoding, rows, cols), m)
    fastest = dict.fromkeys(gemms, float("inf"))
    end, passes = time.perf_counter() + budget_s, 0
    while passes < MIN_PASSES or time.perf_counter() < end:
        for name, gemm in gemms.items():
            start = time.perf_counter()
            gemm(x)
            fastest[name] = min(fastest[name], time.perf_counter() - start)
        passes += 1
    return fastest


def _random(encoding: str, rows: int, cols: int) -> RawWeight:
    """Random values: a product with zeros draws less power and may run faster."""
    if encoding in FLOAT:
        return RawWeight.dense(torch.randn(rows, cols).to(FLOAT[encoding]))
    blocks = torch.randint(256, (rows, cols // BLOCK, BLOCK_BYTES[encoding]), dtype=torch.uint8)
    floats = 2 if encoding == "q4_1" else 1
    scales = torch.full((rows, cols // BLOCK, floats), 0.01, dtype=torch.float16)
    blocks[..., : 2 * floats] = scales.view(torch.uint8)
    return RawWeight(encoding, rows, cols, blocks.flatten(1))
