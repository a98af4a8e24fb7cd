"""Random KV caches, and a driver that feeds sequences through them in any chunks.

Everything starts poisoned: pages hold 0xFF bytes (NaN as hp, −1 as int8), slabs and scratch
hold NaN. A kernel that reads what nobody wrote shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from kernels import reference
from kernels.contract import Operations
from kernels.cpu.build import find_compiler
from kernels.dispatch import select
from kernels.errors import BuildError
from kernels.layout import FORMATS, HP, KvStep, LayerKv, PageLayout
from kernels.weights import Rope

POSITIONS = 512


@dataclass(frozen=True)
class Shape:
    """Sizes of one attention layer."""

    page: int = 16
    head_dim: int = 16
    group: int = 3
    kv_heads: int = 2

    @property
    def query_heads(self) -> int:
        return self.group * self.kv_heads

    @property
    def qkv_width(self) -> int:
        return (self.query_heads + 2 * self.kv_heads) * self.head_dim

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5


@dataclass(frozen=True)
class Variant:
    """A format with its options."""

    fmt: str
    outliers: int = 0
    zero_point: bool = False

    def __str__(self) -> str:
        zero = "+zero" if self.zero_point else ""
        return f"{self.fmt}+n{self.outliers}{zero}" if self.outliers else f"{self.fmt}{zero}"

    @property
    def open_page(self) -> bool:
        return FORMATS[self.fmt].open_page


VARIANTS = [
    Variant("fp16"),
    Variant("int8_channel"),
    Variant("int8_channel", 4),
    Variant("int8_channel", 4, True),
    Variant("k8v4"),
    Variant("k8v4", 4, True),
    Variant("k4v4", 4),
    Variant("int8_token"),
    Variant("int8_token", 4),
    Variant("int8_token", 4, True),
    Variant("int8_static"),
    Variant("int8_tensor"),
]
"""Every format, and every option where it exists."""

DYNAMIC = [v for v in VARIANTS if FORMATS[v.fmt].k_scale in ("channel", "token")]
"""Scales follow the values."""


def backend(kind: str) -> Operations:
    """reference or cpu; the test is skipped where there is no C compiler at all."""
    if kind == "cpu":
        try:
            find_compiler()
        except BuildError as error:
            pytest.skip(str(error))
    return select(kind).ops


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layout_of(variant: Variant, shape: Shape) -> PageLayout:
    return PageLayout(
        FORMATS[variant.fmt],
        shape.kv_heads,
        shape.head_dim,
        shape.page,
        variant.outliers,
        variant.zero_point,
    )


def outlier_channels(variant: Variant, shape: Shape) -> torch.Tensor:
    """int32 [H, n]: one RoPE pair per head and then unused lanes, as calibration leaves it."""
    lanes = torch.full((shape.kv_heads, variant.outliers), -1, dtype=torch.int32)
    if variant.outliers:
        for head in range(shape.kv_heads):
            lanes[head, 0] = head + 1
            lanes[head, 1] = head + 1 + shape.head_dim // 2
    return lanes


def make_cache(
    variant: Variant, shape: Shape, sequences: int = 1, tokens: int = 128, chunk: int = 128
) -> LayerKv:
    """Poisoned, with room for `sequences` of `tokens` each, in chunks of up to `chunk`."""
    layout = layout_of(variant, shape)
    block = (shape.kv_heads, 2, layout.block_elements)
    pages = sequences * pages_for(tokens, shape)
    calibrated = variant.fmt in ("int8_static", "int8_tensor")
    ramp = torch.linspace(0.015, 0.03, shape.kv_heads * shape.head_dim)
    scales = ramp.view(shape.kv_heads, shape.head_dim) if variant.fmt == "int8_static" else (
        torch.full((shape.kv_heads, shape.head_dim), 0.02)
    )  # fmt: skip
    return LayerKv(
        layout,
        torch.full((pages, shape.kv_heads, layout.head_bytes), 0xFF, dtype=torch.uint8),
        torch.full((sequences, *block), torch.nan, dtype=HP),
        torch.full((sequences * (chunk // shape.page + 2), *block), torch.nan, dtype=HP),
        outlier_channels(variant, shape),
        scales if calibrated else None,
        scales * 1.1 if calibrated else None,
        torch.zeros(2, dtype=torch.int64),
    )


def pages_for(tokens: int, shape: Shape) -> int:
    """Of one sequence, with the page that an open slab has reserved."""
    return tokens // shape.page + 1


def tables(sequences: int, tokens: int, shape: Shape) -> list[list[int]]:
    """Block tables that share no page and follow no order."""
    each = pages_for(tokens, shape)
    ids = torch.randperm(sequences * each, generator=generator(7)).tolist()
    return [ids[b * each : (b + 1) * each] for b in range(sequences)]


def random_qkv(rows: int, shape: Shape, seed: int = 0) -> torch.Tensor:
    """float32 [rows, (Hq + 2H)·D] with a few channels far larger than the rest."""
    x = torch.randn(rows, shape.qkv_width, generator=generator(seed))
    x[:, 3 :: shape.head_dim] *= 4.0
    return x


def split_qkv(x: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [T, Hq, D], k [T, H, D], v [T, H, D]."""
    heads = x.view(x.shape[0], -1, shape.head_dim)
    h = shape.kv_heads
    return heads[:, : -2 * h], heads[:, -2 * h : -h], heads[:, -h:]


def rope(shape: Shape) -> Rope:
    d = shape.head_dim
    return Rope.table(1 / 10_000 ** (torch.arange(0, d, 2) / d), POSITIONS)


def no_rope(shape: Shape) -> Rope:
    """Turns nothing: K reaches the cache exactly as given."""
    zeros = torch.zeros(POSITIONS, shape.head_dim // 2)
    return Rope(torch.ones_like(zeros), zeros)


def chunks_of(length: int, size: int) -> list[int]:
    return [min(size, length - start) for start in range(0, length, size)]


def feed(
    backend: Operations,
    kv: LayerKv,
    sequences: list[torch.Tensor],
    chunks: list[list[int]],
    shape: Shape,
    turn: Rope | None = None,
) -> list[torch.Tensor]:
    """Attention output [L, Hq·D] of every sequence, fed in the given chunks.

    sequences[b] is qkv [L, …]; chunks[b] its rows per step. Step i takes the i-th chunk of
    every sequence that still has one.
    """
    out: list[list[torch.Tensor]] = [[] for _ in sequences]
    for members, outputs, _ in steps(backend, kv, sequences, chunks, shape, turn):
        for b, rows in zip(members, outputs, strict=True):
            out[b].append(rows)
    return [torch.cat(parts) for parts in out]


def steps(
    backend: Operations,
    kv: LayerKv,
    sequences: list[torch.Tensor],
    chunks: list[list[int]],
    shape: Shape,
    turn: Rope | None = None,
) -> Iterator[tuple[list[int], tuple[torch.Tensor, ...], KvStep]]:
    """As `feed`, one step at a time: members of the step, their outputs, the step."""
    turn = turn or rope(shape)
    table = tables(len(sequences), max(len(x) for x in sequences), shape)
    done = [0] * len(sequences)
    for i in range(max(len(c) for c in chunks)):
        members = [b for b, c in enumerate(chunks) if i < len(c)]
        rows = [chunks[b][i] for b in members]
        x = torch.cat([sequences[b][done[b] : done[b] + chunks[b][i]] for b in members])
        step = KvStep.build(
            shape.page,
            rows,
            [done[b] for b in members],
            [table[b] for b in members],
            [b if kv.layout.fmt.open_page else -1 for b in members],
        )
        q = backend.append_kv(x, kv, step, turn)
        yield members, backend.attend(q, kv, step, shape.scale).split(rows), step
        for b in members:
            done[b] += chunks[b][i]


def stored(kv: LayerKv, table: list[int], length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of a sequence's first `length` tokens as stored, float32 [H, length, D]."""
    k, v = reference.dequantise(kv, torch.tensor(table))
    return k[:, :length], v[:, :length]
