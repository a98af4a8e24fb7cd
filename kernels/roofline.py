"""The best GEMM rate of this machine on a model's own shapes: what a whole engine is held to.

A fraction of it is honest only if the denominator is: every GEMM at hand runs the same
shapes in the same process, prepacked for them if it can be, and the fastest one counts. There are
two limits: that of float32, and that of products of integers of 8 bits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional as F

from kernels.errors import BuildError
from kernels.weights import BLOCK, BLOCK_BYTES, FLOAT, RawWeight, Rounding

ROWS = 256
"""Enough rows for arithmetic, not memory, to be the limit."""

BUDGET_S = 1.5
MIN_PASSES = 3
READ_BYTES = 64 << 20
"""Read again and again for the memory's rate: more than caches hold."""
READ_PASSES = 6

Shape = tuple[int, int]
Gemm = Callable[[torch.Tensor], torch.Tensor]
Gemms = Callable[[int, int], dict[str, Gemm]]
"""Of a matrix of so many rows and columns: what can multiply by it, by name."""


@dataclass(frozen=True)
class GemmRates:
    """GFLOP/s over the given shapes, each as often as it occurs."""

    rates: dict[str, float]
    """Name of the GEMM -> rate; one that is not available is not in it."""

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

    def gemms(rows: int, cols: int) -> dict[str, Gemm]:
        return candidates(_random(encoding, rows, cols), m)

    return _on_own_thread(shapes, gemms, m, budget_s)


def best_integer_rate(
    shapes: list[Shape], m: int = ROWS, budget_s: float = BUDGET_S
) -> GemmRates | None:
    """The same of products of int8; None where there are none for one of the shapes."""
    rates = _on_own_thread(shapes, lambda n, k: integer_candidates(n, k, m), m, budget_s)
    return rates if rates.rates else None


def _on_own_thread(shapes: list[Shape], gemms: Gemms, m: int, budget_s: float) -> GemmRates:
    with ThreadPoolExecutor(1) as own_thread:
        return own_thread.submit(_measure, shapes, gemms, m, budget_s).result()


@cache
def memory_read_rate() -> float | None:
    """Bytes a second that all threads together read from memory, the best of a few passes
    (about 50 ms); None without a compiler. Call it on the thread that computes."""
    import ctypes

    from kernels.cpu import native
    from kernels.cpu.build import load

    try:
        library = load([native.source("peak.c")], {})
        team = ctypes.c_void_p(native.team())
    except BuildError:
        return None
    data = torch.ones(READ_BYTES // 4)
    fastest = float("inf")
    for _ in range(READ_PASSES):
        start = time.perf_counter()
        library.read_all(ctypes.c_void_p(data.data_ptr()), ctypes.c_int64(len(data)), team)
        fastest = min(fastest, time.perf_counter() - start)
    return READ_BYTES / fastest


def _measure(shapes: list[Shape], gemms: Gemms, m: int, budget_s: float) -> GemmRates:
    counts = Counter(shapes)
    work = {shape: 2 * m * shape[0] * shape[1] * count for shape, count in counts.items()}
    # Long products need few repeats, short ones are noisy: equal shares suit both.
    times = {shape: _time(shape, gemms, m, budget_s / len(counts)) for shape in counts}
    everywhere = [n for n in next(iter(times.values())) if all(n in row for row in times.values())]
    seconds = {n: sum(count * times[shape][n] for shape, count in counts.items())
               for n in everywhere}  # fmt: skip
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


def integer_candidates(rows: int, cols: int, m: int) -> dict[str, Gemm]:
    """Products of int8 that can run here, with weights of 8 and of 4 bits.

    torch's has no scales, and rows that are int8 already: a limit that products of blocks, which
    have both, cannot reach.
    """
    found: dict[str, Gemm] = {}
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        x, w = (torch.randint(-127, 128, (n, cols), dtype=torch.int8) for n in (m, rows))
        found["torch int8"] = lambda _: torch._int_mm(x, w.T)
    if cols % BLOCK == 0:
        with suppress(BuildError):
            for name in ("q8_0", "q4_0"):
                found[f"panel {name}"] = _panel(_random(name, rows, cols), Rounding(8))
    return found


def _onednn(dense: torch.Tensor, m: int) -> Gemm:
    packed = torch.ops.mkldnn._reorder_linear_weight(dense, m)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def _panel(weight: RawWeight, rounding: Rounding | None = None) -> Gemm:
    from kernels.cpu import gemm

    packed = gemm.pack(weight, rounding)
    return lambda x: gemm.linear(x, packed)


@torch.inference_mode()
def _time(shape: Shape, gemms_of: Gemms, m: int, budget_s: float) -> dict[str, float]:
    """Seconds of each GEMM's fastest pass. They take turns, so a disturbance meets all."""
    rows, cols = shape
    x, gemms = torch.randn(m, cols), gemms_of(rows, cols)
    fastest = dict.fromkeys(gemms, float("inf"))
    end, passes = time.perf_counter() + budget_s, 0
    while gemms and (passes < MIN_PASSES or time.perf_counter() < end):
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
