"""append_kv and attend of the CPU backend: checks arguments, hands pointers to kv's C.

One small library per (page size, head size, query heads per KV head): with these fixed at
compile time the inner loops unroll into registers.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from kernels.cpu.build import load
from kernels.errors import KernelError
from kernels.layout import KvStep, LayerKv
from kernels.weights import Rope

SOURCES = [Path(__file__).with_name(name) for name in ("append.c", "attend.c")]
LANES = 8
_FORMAT_CODE = {"fp16": 0, "int8_channel": 1, "int8_token": 2, "int8_static": 3, "int8_tensor": 3}
_OFFSETS = ("k", "v", "k_scale", "k_zero", "v_scale", "v_zero", "k_out")


class _Cache(ctypes.Structure):
    """`Cache` of kv.h."""

    _fields_ = [
        *((n, ctypes.c_void_p) for n in ("pages", "slabs", "scratch", "outliers")),
        *((n, ctypes.c_void_p) for n in ("k_static", "v_static", "saturated")),
        *((n, ctypes.c_int64) for n in ("format", "kv_heads", "head_bytes", "lanes")),
        *((n, ctypes.c_int64) for n in _OFFSETS),
    ]


class _Step(ctypes.Structure):
    """`Step` of kv.h."""

    _fields_ = [
        *((n, ctypes.c_void_p) for n in ("row_start", "context", "table")),
        *((n, ctypes.c_void_p) for n in ("slab", "scratch", "positions")),
        *((n, ctypes.c_int64) for n in ("sequences", "width")),
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
    """As `reference.append_kv`."""
    d = kv.layout.head_dim
    query_heads = qkv.shape[1] // d - 2 * kv.layout.kv_heads
    if step.max_context > rope.cos.shape[0]:
        raise KernelError(
            f"position {step.max_context - 1} is past the RoPE table of {rope.cos.shape[0]}; "
            "build it for the longest context"
        )
    qkv = _float32(qkv)
    q = torch.empty(qkv.shape[0], query_heads, d)
    failed = library_for(kv, query_heads).append_kv(
        ctypes.byref(cache_struct(kv)),
        ctypes.byref(step_struct(step)),
        _pointer(qkv),
        _pointer(_float32(rope.cos)),
        _pointer(_float32(rope.sin)),
        _pointer(q_norm),
        _pointer(k_norm),
        ctypes.c_float(eps),
        _pointer(q),
        ctypes.c_int64(query_heads),
        torch.get_num_threads(),
    )
    if failed:
        raise MemoryError("append_kv: no memory for the tiles of a step")
    return q


def attend(q: torch.Tensor, kv: LayerKv, step: KvStep, scale: float) -> torch.Tensor:
    """As `reference.attend`."""
    q = _float32(q)
    out = torch.empty(q.shape[0], q.shape[1] * q.shape[2])
    failed = library_for(kv, q.shape[1]).attend(
        ctypes.byref(cache_struct(kv)),
        ctypes.byref(step_struct(step)),
        _pointer(q),
        _pointer(out),
        ctypes.c_float(scale),
        ctypes.c_int64(q.shape[1]),
        torch.get_num_threads(),
    )
    if failed:
        raise MemoryError("attend: no memory for the tiles of a step")
    return out


def library_for(kv: LayerKv, query_heads: int) -> ctypes.CDLL:
    """The kernels for the cache's shape. Raises KernelError for one they cannot have."""
    layout = kv.layout
    if layout.page_tokens % LANES or layout.head_dim % LANES or query_heads % layout.kv_heads:
        raise KernelError(
            f"cpu kernels: page of {layout.page_tokens} tokens, head size {layout.head_dim}, "
            f"{query_heads} query over {layout.kv_heads} KV heads: the first two must be "
            f"multiples of {LANES}, the heads must divide; use kernels = reference"
        )
    return library(layout.page_tokens, layout.head_dim, query_heads // layout.kv_heads)


_libraries: dict[tuple[int, int, int], ctypes.CDLL] = {}


def library(page_tokens: int, head_dim: int, group: int) -> ctypes.CDLL:
    """The kernels for one shape; built on first use. Raises BuildError."""
    shape = page_tokens, head_dim, group
    if shape not in _libraries:
        macros = {"PAGE": page_tokens, "DIM": head_dim, "GROUP": group}
        _libraries[shape] = load(SOURCES, macros)
    return _libraries[shape]


def cache_struct(kv: LayerKv) -> _Cache:
    """`Cache` for C; the tensors of `kv` must outlive it."""
    layout = kv.layout
    sections = layout.sections
    return _Cache(
        kv.pages.data_ptr(),
        kv.slabs.data_ptr(),
        kv.scratch.data_ptr(),
        kv.outliers.data_ptr(),
        _pointer(kv.k_static),
        _pointer(kv.v_static),
        _pointer(kv.saturated),
        _FORMAT_CODE[layout.fmt.name],
        layout.kv_heads,
        layout.head_bytes,
        layout.outliers,
        *(sections[name].offset if name in sections else -1 for name in _OFFSETS),
    )


def step_struct(step: KvStep) -> _Step:
    """`Step` for C; the tensors of `step` must outlive it."""
    return _Step(
        step.row_start.data_ptr(),
        step.context.data_ptr(),
        step.table.data_ptr(),
        step.slab.data_ptr(),
        step.scratch.data_ptr(),
        step.positions.data_ptr(),
        *step.table.shape,
    )


def _pointer(x: torch.Tensor | None) -> ctypes.c_void_p | None:
    return None if x is None else ctypes.c_void_p(x.data_ptr())


def _float32(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32).contiguous()
