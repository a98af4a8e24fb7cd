"""attend of the Triton backend: which programs walk which pages.

A decode row is split over its pages when the batch alone would leave the GPU idle, and
`combine` adds up the shares; rows of a prefill chunk go in tiles that read K and V once for
all of them. A step that has both gets both launches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton.language as tl

from kernels.layout import KvStep, LayerKv, PageLayout
from kernels.triton.device import attend as device
from kernels.triton.launch import (
    Launch,
    cache_args,
    layout_constants,
    power_of_two,
    step_args,
)

VECTORS = 64
"""Query vectors of a prefill tile: as many as share K and V without spilling registers. Half
as many for wide heads, except on LEAN GPUs."""
LEAN = (9, 10)
"""Major compute capabilities whose matrix instructions read operands from shared memory."""
KEYS = 64
"""Tokens per turn of the loop over pages."""
WIDE = 128
"""Head size from which a prefill tile takes eight warps: four would spill registers."""
WAVES = 2
"""Programs that a decode step wants for every processor of the GPU."""
SHARE = 256
"""Tokens that a share of a split row has at least: below, `combine` costs more than it saves."""
MOST_SPLITS = 64
PROCESSORS, CAPABILITY = 16, 90
"""Assumed where there is no GPU to ask."""


@dataclass(frozen=True)
class Tile:
    """Shape of one program."""

    rows: int
    group: int
    pages: int
    """Pages per turn of the loop."""

    @property
    def vectors(self) -> int:
        """rows x group, rounded up to what a matrix instruction takes."""
        return max(16, power_of_two(self.rows * self.group))

    @classmethod
    def decode(cls, layout: PageLayout, group: int) -> Tile:
        return cls(1, group, max(1, KEYS // layout.page_tokens))

    @classmethod
    def prefill(cls, layout: PageLayout, group: int, capability: int) -> Tile:
        fits = layout.head_dim < WIDE or capability // 10 in LEAN
        vectors = VECTORS if fits else VECTORS // 2
        rows = min(layout.page_tokens, max(1, vectors // group))
        return cls(rows, group, max(1, KEYS // layout.page_tokens))


def attend(
    q: torch.Tensor,
    kv: LayerKv,
    step: KvStep,
    scale: float,
    dot: tl.dtype = tl.float16,
    splits: int | None = None,
) -> torch.Tensor:
    """As `reference.attend`.

    dot: the type in which products are taken (sums are always float32). float16 keeps int8
    values exact and rounds queries, weights and scaled keys to 11 bits; float32 rounds
    nothing, slowly. splits: shares of a decode row's pages; None chooses.
    """
    out = torch.empty((q.shape[0], q.shape[1] * q.shape[2]), dtype=torch.float32, device=q.device)
    for launch in launches(q, out, kv, step, scale, dot, splits):
        launch.run()
    return out


def launches(
    q: torch.Tensor,
    out: torch.Tensor,
    kv: LayerKv,
    step: KvStep,
    scale: float,
    dot: tl.dtype = tl.float16,
    splits: int | None = None,
    capability: int | None = None,
) -> list[Launch]:
    """What attend launches, in order; the result goes to out [T, Hq·D].

    capability: of the GPU (90 is Hopper); None asks the one that q is on.
    """
    heads, layout, sequences = q.shape[1], kv.layout, step.context.shape[0]
    group = layout.group(heads)
    if splits is None:
        splits = splits_for(sequences * layout.kv_heads, step.max_context, processors(q.device))
    shares = sequences * heads * splits if splits > 1 else 0
    args = {
        "q": q.float().contiguous(),
        "out": out,
        "part": out.new_empty((shares, layout.head_dim)),
        "part_sums": out.new_empty((shares, 2)),
        "scale": scale * math.log2(math.e),
        **cache_args(kv),
        **step_args(step),
    }
    order = []
    if sequences > 1 or q.shape[0] == 1:
        decode = Tile.decode(layout, group)
        order.append(_tiles(args, layout, decode, sequences, splits, dot, True))
        if splits > 1:
            order.append(_combine(args, layout, group, sequences, splits))
    if q.shape[0] > sequences:
        tile = Tile.prefill(layout, group, capability or capability_of(q.device))
        pieces = (sequences + step.scratch_blocks) * -(-layout.page_tokens // tile.rows)
        order.append(_tiles(args, layout, tile, pieces, 1, dot, False))
    return order


def splits_for(programs: int, longest: int, processors: int) -> int:
    """Shares of a row's pages, for `programs` rows x KV heads and the longest context."""
    wanted = -(-WAVES * processors // programs)
    return max(1, min(wanted, longest // SHARE, MOST_SPLITS))


@cache
def processors(device: torch.device) -> int:
    if device.type != "cuda":
        return PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def capability_of(device: torch.device) -> int:
    if device.type != "cuda":
        return CAPABILITY
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def _tiles(
    args: dict[str, Any],
    layout: PageLayout,
    tile: Tile,
    programs: int,
    splits: int,
    dot: tl.dtype,
    is_decode: bool,
) -> Launch:
    constants = layout_constants(layout)
    return Launch(
        device.attend_tiles,
        (programs, layout.kv_heads, splits),
        args,
        {
            **constants,
            "G": tile.group,
            "ROWS": tile.rows,
            "M": tile.vectors,
            "PAGES": tile.pages,
            "LANE_BLOCK": max(16, power_of_two(constants["LANES"])),
            "DECODE": is_decode,
            "SPLIT": splits > 1,
            "DOT": dot,
        },
        warps=4 if is_decode or layout.head_dim < WIDE else 8,
        stages=3 if is_decode else 2,
    )


def _combine(
    args: dict[str, Any], layout: PageLayout, group: int, sequences: int, splits: int
) -> Launch:
    constants = layout_constants(layout)
    names = ("out", "part", "part_sums", "v_static", "row_start", "context", "table", "slab")
    return Launch(
        device.combine,
        (sequences, group * layout.kv_heads, 1),
        {**{name: args[name] for name in (*names, "table_width")}, "splits": splits},
        {
            **{name: constants[name] for name in ("FORMAT", "P", "D", "H")},
            "G": group,
            "MOST": MOST_SPLITS,
        },
    )
