"""append_kv of the Triton backend: three launches at most.

rotate_queries     q' = rope(norm(q))                           every step
carry_open_rows    slab -> scratch                              chunks past an open page
write_tiles        k' = rope(norm(k)); write k', v; seal        every step
"""

from __future__ import annotations

import torch

from kernels.layout import KvStep, LayerKv
from kernels.triton.device import append as device
from kernels.triton.launch import (
    Launch,
    cache_args,
    layout_constants,
    power_of_two,
    step_args,
)
from kernels.weights import Rope

QUERY_BLOCK = 16
"""Query heads per program of rotate_queries."""


def append_kv(
    qkv: torch.Tensor,
    kv: LayerKv,
    step: KvStep,
    rope: Rope,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    """As `reference.append_kv`. A sequence without slab or page (-1) is not written."""
    heads = qkv.shape[1] // kv.layout.head_dim - 2 * kv.layout.kv_heads
    q = torch.empty(
        (qkv.shape[0], heads, kv.layout.head_dim), dtype=torch.float32, device=qkv.device
    )
    for launch in launches(qkv, q, kv, step, rope, q_norm, k_norm, eps):
        launch.run()
    return q


def launches(
    qkv: torch.Tensor,
    q: torch.Tensor,
    kv: LayerKv,
    step: KvStep,
    rope: Rope,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
) -> list[Launch]:
    """What append_kv launches, in order; the queries go to q [T, Hq, D]."""
    rope.require(step.max_context)
    qkv = qkv.float().contiguous()
    turn = {"cos": rope.cos, "sin": rope.sin, "eps": eps}
    order = [
        _rotate_queries(qkv, q, step, turn, q_norm),
        _write_tiles(qkv, q.shape[1], kv, step, turn, k_norm),
    ]
    if kv.layout.fmt.open_page and step.scratch_blocks:
        order.insert(1, _carry_open_rows(kv, step))
    return order


def _rotate_queries(
    qkv: torch.Tensor,
    q: torch.Tensor,
    step: KvStep,
    turn: dict[str, object],
    norm: torch.Tensor | None,
) -> Launch:
    rows, heads, d = q.shape
    block = min(QUERY_BLOCK, power_of_two(heads))
    return Launch(
        device.rotate_queries,
        (rows, -(-heads // block), 1),
        {"qkv": qkv, "out": q, "positions": step.positions, "norm": norm, **turn},
        {
            "HEADS": heads,
            "WIDTH": qkv.shape[1],
            "D": d,
            "NORM": norm is not None,
            "BLOCK": block,
        },
    )


def _carry_open_rows(kv: LayerKv, step: KvStep) -> Launch:
    layout = kv.layout
    names = ("row_start", "context", "slab", "scratch")
    return Launch(
        device.carry_open_rows,
        (step.context.shape[0], layout.kv_heads, 1),
        {
            "slabs": kv.slabs,
            "spare": kv.scratch,
            **{name: getattr(step, name) for name in names},
        },
        {"P": layout.page_tokens, "D": layout.head_dim, "H": layout.kv_heads},
    )


def _write_tiles(
    qkv: torch.Tensor,
    heads: int,
    kv: LayerKv,
    step: KvStep,
    turn: dict[str, object],
    norm: torch.Tensor | None,
) -> Launch:
    tiles = step.context.shape[0] + step.scratch_blocks
    return Launch(
        device.write_tiles,
        (tiles, kv.layout.kv_heads, 1),
        {
            "qkv": qkv,
            "saturated": kv.saturated,
            "norm": norm,
            **turn,
            **cache_args(kv),
            **step_args(step),
        },
        {"HEADS": heads, "NORM": norm is not None, **layout_constants(kv.layout)},
    )
