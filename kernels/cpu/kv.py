"""append_kv and attend of the CPU backend: checks arguments, hands pointers to kv's C.

One small library per (page size, head size, query heads per KV head): with these fixed at
compile time the inner loops unroll into registers.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from kernels.cpu import native
from kernels.cpu.native import FLOAT, POINTER, SIZE, floats, optional_floats, team
from kernels.errors import KernelError
from kernels.layout import PARTS, V_GROUP, Code, KvStep, LayerKv, PageLayout
from kernels.weights import Rope

LANES = 8
_OFFSETS = (
    "k", "v", "k_scale", "k_zero", "v_scale", "v_zero", "v_shift", "k_first", "v_first", "k_out",
)  # fmt: skip


class _Cache(ctypes.Structure):
    """`Cache` of kv.h."""

    _fields_ = [
        *((n, POINTER) for n in ("pages", "slabs", "scratch", "outliers")),
        *((n, POINTER) for n in ("k_static", "v_static", "saturated")),
        *((n, SIZE) for n in ("page_count", "slab_count", "scratch_count")),
        *((n, SIZE) for n in ("format", "k_bits", "v_bits", "kv_heads", "head_bytes", "lanes")),
        *((n, SIZE) for n in _OFFSETS),
    ]


class _Step(ctypes.Structure):
    """`Step` of kv.h."""

    _fields_ = [
        *((n, POINTER) for n in ("row_start", "context", "table")),
        *((n, POINTER) for n in ("slab", "scratch", "positions")),
        *((n, SIZE) for n in ("rows", "sequences", "width")),
    ]


def append_kv(
    qkv: torch.Tensor,
    kv: LayerKv,
    step: KvStep,
    rope: Rope,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    layout, d = kv.layout, kv.layout.head_dim
    query_heads = qkv.shape[1] // d - 2 * layout.kv_heads
    rows, positions = len(step.positions), len(rope.cos)
    rope.require(step.max_context)
    q = torch.empty(rows, query_heads, d)
    failed = library_for(layout, query_heads).append_kv(
        ctypes.byref(cache_struct(kv)),
        ctypes.byref(step_struct(step, layout)),
        floats("qkv", qkv.contiguous(), (rows, (query_heads + 2 * layout.kv_heads) * d)),
        floats("cos", rope.cos, (positions, d // 2)),
        floats("sin", rope.sin, (positions, d // 2)),
        positions,
        optional_floats("q_norm", q_norm, (d,)),
        optional_floats("k_norm", k_norm, (d,)),
        eps,
        q.data_ptr(),
        query_heads,
        team(),
    )
    native.demand("append_kv", failed)
    return q


def attend(q: torch.Tensor, kv: LayerKv, step: KvStep, scale: float) -> torch.Tensor:
    rows, query_heads, d = len(step.positions), q.shape[1], kv.layout.head_dim
    out = torch.empty(rows, query_heads * d)
    failed = library_for(kv.layout, query_heads).attend(
        ctypes.byref(cache_struct(kv)),
        ctypes.byref(step_struct(step, kv.layout)),
        floats("q", q.contiguous(), (rows, query_heads, d)),
        out.data_ptr(),
        scale,
        query_heads,
        team(),
    )
    native.demand("attend", failed)
    return out


def misfit(layout: PageLayout, query_heads: int) -> str | None:
    if layout.page_tokens % LANES or layout.head_dim % LANES:
        return (
            f"page of {layout.page_tokens} tokens, head size {layout.head_dim}: "
            f"cpu kernels need multiples of {LANES}"
        )
    return None


def library_for(layout: PageLayout, query_heads: int) -> ctypes.CDLL:
    """The kernels for the cache's shape. Raises KernelError for one they cannot have."""
    group = layout.group(query_heads)
    if problem := misfit(layout, query_heads):
        raise KernelError(f"{problem}; use kernels = reference")
    return library(layout.page_tokens, layout.head_dim, group)


@cache
def library(page_tokens: int, head_dim: int, group: int) -> ctypes.CDLL:
    """The kernels for one shape; built on first use. Raises BuildError."""
    shape = {"PAGE": page_tokens, "DIM": head_dim, "GROUP": group}
    mirrored = [ctypes.sizeof(_Cache), ctypes.sizeof(_Step), *Code, V_GROUP, PARTS]
    loaded = native.library(("append.c", "attend.c"), shape, mirrored)
    tensors = [POINTER] * 3
    loaded.append_kv.argtypes = [
        POINTER, POINTER, *tensors, SIZE, POINTER, POINTER, FLOAT, POINTER, SIZE, POINTER,
    ]  # fmt: skip
    loaded.attend.argtypes = [POINTER, POINTER, POINTER, POINTER, FLOAT, SIZE, POINTER]
    return loaded


def cache_struct(kv: LayerKv) -> _Cache:
    """`Cache` for C; the tensors of `kv` must outlive it."""
    layout = kv.layout
    sections = layout.sections
    optional = (kv.k_static, kv.v_static, kv.saturated)
    return _Cache(
        kv.pages.data_ptr(),
        kv.slabs.data_ptr(),
        kv.scratch.data_ptr(),
        kv.outliers.data_ptr(),
        *(None if one is None else one.data_ptr() for one in optional),
        len(kv.pages),
        len(kv.slabs),
        len(kv.scratch),
        layout.fmt.code,
        layout.fmt.k_bits,
        layout.fmt.v_bits,
        layout.kv_heads,
        layout.head_bytes,
        layout.outliers,
        *(sections[name].offset if name in sections else -1 for name in _OFFSETS),
    )


def step_struct(step: KvStep, layout: PageLayout) -> _Step:
    """`Step` for C; the tensors of `step` must outlive it. Raises KernelError for other pages."""
    if step.page_tokens != layout.page_tokens:
        raise KernelError(
            f"a step in pages of {step.page_tokens} tokens does not fit a cache in pages of "
            f"{layout.page_tokens}"
        )
    return _Step(
        step.row_start.data_ptr(),
        step.context.data_ptr(),
        step.table.data_ptr(),
        step.slab.data_ptr(),
        step.scratch.data_ptr(),
        step.positions.data_ptr(),
        len(step.positions),
        *step.table.shape,
    )
