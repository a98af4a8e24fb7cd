"""Times every kernel beside what the machine could do: `python -m kernels.bench`.

One row per operation, format and backend. "of roof" is the time that the bytes (or the
multiply-adds of floats, whichever take longer) need at the rates measured in the same run, over
the time that passed. Pages and weights are cold: consecutive calls use those of different
layers. Activations are not, as in a decoder; small operations can pass the roof that way. The
products of a layer are taken in floats and in integers, in turns; "× first" is by the least times.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import torch

from kernels import memory
from kernels.contract import Operations
from kernels.cpu import build, gemm, native
from kernels.decoder import COMPUTE, product_bits, product_names
from kernels.dispatch import select
from kernels.errors import KernelError
from kernels.layout import FORMATS, HP, KvStep, LayerKv, PageLayout
from kernels.roofline import memory_read_rate
from kernels.weights import BLOCK_BYTES, FLOAT, RawWeight, Rope, Rounding

COLD_BYTES = 96 << 20
"""Data that a benchmark walks through: more than the last cache level holds."""
KEPT = 32
"""Columns in float of a matrix of products of int8, as `outlier_columns` has it."""


Floats = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Roof:
    """Measured ceilings of this machine with torch's number of threads."""

    bytes_per_s: float
    flops_per_s: float

    def share(self, work: Work, seconds: float) -> float:
        """Least possible time over the time taken."""
        return max(work.nbytes / self.bytes_per_s, work.flops / self.flops_per_s) / seconds


@dataclass(frozen=True)
class Work:
    """What one call moves and computes at least."""

    nbytes: float
    flops: float


@dataclass(frozen=True)
class TimedCall:
    """One row of the table."""

    op: str
    fmt: str
    call: Callable[[], object]
    work: Work


@dataclass(frozen=True)
class Sizes:
    """One decoder layer and its load."""

    sequences: int = 48
    context: int = 512
    prompt: int = 512
    kv_heads: int = 3
    group: int = 3
    head_dim: int = 64
    page: int = 16
    hidden: int = 576
    mlp: int = 1536

    @property
    def query_heads(self) -> int:
        return self.kv_heads * self.group


def measure(
    calls: Sequence[Callable[[], object]], seconds: float = 0.3, least: int = 5
) -> list[list[float]]:
    """Seconds of each call, in turns, for about `seconds` in all for each; the first warms up."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    while len(times[0]) < least or sum(map(sum, times)) < seconds * len(calls):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return times


def measure_roof() -> Roof:
    """Multiply-adds from registers, and reading memory, both in C."""
    library = build.load([native.source("peak.c")], {})
    rounds, team = 1 << 22, ctypes.c_void_p(native.team())
    fma = min(measure([lambda: library.multiply_add(ctypes.c_int64(rounds), team)])[0])
    flops = 2 * library.multiply_adds() * rounds * torch.get_num_threads()
    return Roof(memory_read_rate() or 0.0, flops / fma)


def random_cache(name: str, sizes: Sizes, pages: int, blocks: int) -> LayerKv:
    """One layer, filled with plausible numbers."""
    layout = PageLayout(FORMATS[name], sizes.kv_heads, sizes.head_dim, sizes.page)
    raw = memory.zeros((pages, sizes.kv_heads, layout.head_bytes), torch.uint8)  # as the engine has
    for section in layout.sections:
        view = layout.view(raw, section)
        if view.dtype == torch.int8:
            view.random_(-100, 100)
        elif view.dtype == torch.uint8:
            view.random_(0, 240)
        else:
            view.copy_(torch.full((), 0.01) if "scale" in section else torch.randn(view.shape))
    slab = torch.randn(blocks, sizes.kv_heads, 2, layout.block_elements).to(HP)
    scale = torch.full((sizes.kv_heads, sizes.head_dim), 0.03)
    lanes = torch.zeros(sizes.kv_heads, 0, dtype=torch.int32)
    return LayerKv(layout, raw, slab, slab.clone(), lanes, scale, scale)


def cache_cases(run: Operations, name: str, sizes: Sizes) -> Iterator[TimedCall]:
    """Decode of every sequence at once, then one prompt in one piece."""
    s, tokens = sizes, max(sizes.context, sizes.prompt)
    each = tokens // s.page + 1
    blocks = max(s.sequences, s.prompt // s.page + 1)
    one = random_cache(name, s, s.sequences * each, blocks)
    copies = max(2, -(-COLD_BYTES // one.pages.nbytes)) if run.name != "reference" else 2
    layers = [one, *(random_cache(name, s, len(one.pages), blocks) for _ in range(copies - 1))]
    ids = torch.randperm(len(one.pages)).tolist()
    tables = [ids[b * each : (b + 1) * each] for b in range(s.sequences)]
    rope = Rope.table(1 / 10_000 ** (torch.arange(0, s.head_dim, 2) / s.head_dim), tokens + 1)
    decode = KvStep.build(
        s.page,
        [1] * s.sequences,
        [max(s.context - 1 - b % s.page, 0) for b in range(s.sequences)],  # one in P seals
        tables,
        list(range(s.sequences)),
    )
    prefill = KvStep.build(s.page, [s.prompt], [0], tables[:1], [0])
    for label, step in (("decode", decode), ("prefill", prefill)):
        rows = len(step.positions)
        qkv = torch.randn(rows, (s.query_heads + 2 * s.kv_heads) * s.head_dim)
        q = torch.randn(rows, s.query_heads, s.head_dim)
        kv = cycle(layers)

        def append(
            x: torch.Tensor = qkv, step: KvStep = step, kv: Iterator[LayerKv] = kv
        ) -> object:
            return run.append_kv(x, next(kv), step, rope)

        def attend(q: torch.Tensor = q, step: KvStep = step, kv: Iterator[LayerKv] = kv) -> object:
            return run.attend(q, next(kv), step, s.head_dim**-0.5)

        keys = float((step.positions + 1).sum())
        read = s.sequences * s.context if label == "decode" else s.prompt
        moved = one.layout.bytes_per_token * read + 2 * 4 * q.numel()
        flops = 4 * keys * s.query_heads * s.head_dim
        written = 4 * qkv.numel() + 4 * q.numel() + one.layout.bytes_per_token * rows
        yield TimedCall(f"append {label}", name, append, Work(written, 3 * qkv.numel()))
        yield TimedCall(f"attend {label}", name, attend, Work(moved, flops))


def row_cases(run: Operations, rows: int, sizes: Sizes) -> Iterator[TimedCall]:
    x, weight = torch.randn(rows, sizes.hidden), torch.ones(sizes.hidden)
    pair = torch.randn(rows, 2 * sizes.mlp)
    yield TimedCall(
        f"rms_norm {rows}",
        "f32",
        lambda: run.rms_norm(x, weight, 1e-5),
        Work(8 * x.numel(), 4 * x.numel()),
    )
    yield TimedCall(
        f"silu_mul {rows}",
        "f32",
        lambda: run.silu_mul(pair),
        Work(6 * pair.numel(), 10 * pair.numel()),
    )


def linear_cases(run: Operations, encoding: str, sizes: Sizes) -> Iterator[TimedCall]:
    """hidden -> 2 · mlp, with cold weights."""
    n, k = 2 * sizes.mlp, sizes.hidden
    if encoding in FLOAT:
        raw = RawWeight.dense((torch.randn(n, k) * 0.02).to(FLOAT[encoding]))
    else:
        raw = random_blocks(encoding, n, k)
    weights = [run.pack(raw) for _ in range(-(-COLD_BYTES // max(raw.nbytes, n * k)))]
    for rows in (1, 48, 256):
        x, turn = torch.randn(rows, k), cycle(weights)

        def call(x: torch.Tensor = x, turn: Iterator[object] = turn) -> object:
            return run.linear(x, next(turn))

        moved = raw.nbytes + 4 * rows * (n + k)
        yield TimedCall(f"linear {rows}", encoding, call, Work(moved, 2 * rows * n * k))


def random_blocks(encoding: str, n: int, k: int) -> RawWeight:
    row = k // 32 * BLOCK_BYTES[encoding]
    return RawWeight(encoding, n, k, torch.randint(0, 50, (n, row), dtype=torch.uint8))


def layer_cases(encoding: str, sizes: Sizes) -> Iterator[list[TimedCall]]:
    """A layer's products in C, as a step has them, with cold weights: of floats and of integers,
    with the columns kept that a calibration would name."""
    s = sizes
    shapes = {
        "qkv": ((s.query_heads + 2 * s.kv_heads) * s.head_dim, s.hidden),
        "out": (s.hidden, s.query_heads * s.head_dim),
        "gate_up": (2 * s.mlp, s.hidden),
        "down": (s.hidden, s.mlp),
    }
    raw = {name: random_blocks(encoding, n, k) for name, (n, k) in shapes.items()}
    nbytes, macs = sum(w.nbytes for w in raw.values()), sum(w.rows * w.cols for w in raw.values())
    copies = -(-COLD_BYTES // macs)

    def packed(compute: str) -> dict[str, gemm.PackedWeight]:
        found = {}
        for name in product_names(0):
            bits, weight = product_bits(compute, name), raw[name.partition(".")[2]]
            kept = range(0, 18 * KEPT, 18) if bits == 8 else ()
            rounding = None if bits is None else Rounding(bits, tuple(kept))
            found[name.partition(".")[2]] = gemm.pack(weight, rounding)
        return found

    layers = {compute: [packed(compute) for _ in range(copies)] for compute in COMPUTE}
    for rows in (1, 4, 8, 24, 48, 256):
        x = {name: torch.randn(rows, k) for name, (_, k) in shapes.items()}
        y = {name: torch.empty(rows, n) for name, (n, _) in shapes.items()}
        work = Work(nbytes + 4 * rows * sum(n + k for n, k in shapes.values()), 2 * rows * macs)

        def timed(compute: str, x: Floats = x, y: Floats = y, work: Work = work) -> TimedCall:
            turn = cycle([
                [gemm.again(x[name], weight, y[name]) for name, weight in layer.items()]
                for layer in layers[compute]
            ])  # fmt: skip

            def call() -> None:
                for product in next(turn):
                    product()

            return TimedCall(f"layer {len(x['qkv'])}", f"{encoding} {compute}", call, work)

        yield [timed(compute) for compute in COMPUTE]


def cases(
    run: Operations, sizes: Sizes, formats: list[str], only: str
) -> Iterator[Sequence[TimedCall]]:
    """Those of one sequence are measured in turns. Data is made for operations whose names can
    begin with `only`."""

    def wanted(*names: str) -> bool:
        return any(name.startswith(only) or only.startswith(name) for name in names)

    if wanted("append", "attend"):
        for name in formats:
            yield from ([one] for one in cache_cases(run, name, sizes))
    if wanted("rms_norm", "silu_mul"):
        for rows in (1, sizes.sequences, 256):
            yield from ([one] for one in row_cases(run, rows, sizes))
    if wanted("linear"):
        for encoding in (*FLOAT, *BLOCK_BYTES):
            yield from ([one] for one in linear_cases(run, encoding, sizes))
    if wanted("layer") and run.name == "cpu":
        for encoding in BLOCK_BYTES:
            yield from layer_cases(encoding, sizes)


def row_of(case: TimedCall, times: list[float], first: float, backend: str, roof: Roof) -> str:
    """`first`: least seconds of the first of those that take turns."""
    median = statistics.median(times)
    return (
        f"{case.op:16}{case.fmt:14}{backend:11}{min(times) * 1e3:10.3f}{median * 1e3:10.3f}"
        f"{case.work.nbytes / 1e6:9.2f}{case.work.flops / 1e6:9.1f}"
        f"{roof.share(case.work, min(times)):9.1%}{first / min(times):9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kernels.bench", description=__doc__)
    parser.add_argument("--backend", nargs="*", default=["cpu", "reference"])
    parser.add_argument("--format", nargs="*", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--only", default="", help="operations whose name begins so, like layer")
    parser.add_argument("--sequences", type=int, default=48)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument(
        "--without", nargs="*", default=[], help="what C may not use, like avx512vnni avxvnni"
    )
    options = parser.parse_args()
    build.FLAGS += tuple(f"-mno-{name}" for name in options.without)
    sizes = Sizes(options.sequences, options.context, options.prompt)
    try:
        roof = measure_roof()
        print(
            f"{torch.get_num_threads()} threads: {roof.bytes_per_s / 1e9:.1f} GB/s read, "
            f"{roof.flops_per_s / 1e9:.0f} GFLOP/s multiply-add"
        )
        print(f"{sizes}\n")
        print(f"{'op':16}{'format':14}{'backend':11}{'least ms':>10}{'median':>10}", end="")
        print(f"{'MB':>9}{'MFLOP':>9}{'of roof':>9}{'× first':>9}")
        for backend in options.backend:
            run = select(backend).ops
            for turns in cases(run, sizes, options.format, options.only):
                if not turns[0].op.startswith(options.only):
                    continue
                taken = measure([case.call for case in turns])
                first = min(taken[0])
                for case, times in zip(turns, taken, strict=True):
                    print(row_of(case, times, first, run.name, roof), flush=True)
    except KernelError as error:
        raise SystemExit(f"bench: {error}") from error


if __name__ == "__main__":
    main()
