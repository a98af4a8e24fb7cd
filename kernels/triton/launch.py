"""A kernel launch as a value: run it, or compile it for a GPU that is not there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import triton

from kernels.errors import KernelError
from kernels.layout import HP, KvStep, LayerKv, PageLayout

_OFFSETS = {
    "V_AT": "v",
    "KS_AT": "k_scale",
    "KZ_AT": "k_zero",
    "VS_AT": "v_scale",
    "VZ_AT": "v_zero",
    "SHIFT_AT": "v_shift",
    "KF_AT": "k_first",
    "VF_AT": "v_first",
    "PLANE_AT": "k_out",
}


@dataclass(frozen=True)
class Launch:
    kernel: Any
    """A @triton.jit function."""
    grid: tuple[int, int, int]
    args: dict[str, Any]
    """Tensors, numbers and None, by name."""
    constants: dict[str, Any] = field(default_factory=dict)
    """Its constexprs."""
    warps: int = 4
    stages: int = 2

    def run(self) -> None:
        if all(self.grid):
            self.kernel[self.grid](
                **self.args, **self.constants, num_warps=self.warps, num_stages=self.stages
            )


def is_interpreted() -> bool:
    """Kernels run in Python, on any device, for tests: TRITON_INTERPRET=1."""
    return bool(triton.knobs.runtime.interpret)


def power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return triton.next_power_of_2(n)


def misfit(layout: PageLayout, query_heads: int) -> str | None:
    p, d = layout.page_tokens, layout.head_dim
    if min(p, d) < 16 or p & (p - 1) or d & (d - 1):
        return f"page of {p} tokens, head size {d}: triton kernels need powers of two from 16 up"
    return None


def layout_constants(layout: PageLayout) -> dict[str, int]:
    """What every kernel that touches pages knows at compile time.

    Raises KernelError for sizes that no tile has.
    """
    if problem := misfit(layout, layout.kv_heads):
        raise KernelError(f"{problem}; use kernels = reference")
    p, d = layout.page_tokens, layout.head_dim
    sections = layout.sections
    return {
        "FORMAT": layout.fmt.code.value,
        "K_BITS": layout.fmt.k_bits,
        "V_BITS": layout.fmt.v_bits,
        "P": p,
        "D": d,
        "H": layout.kv_heads,
        "LANES": layout.outliers if "k_out" in sections else 0,
        "HEAD_BYTES": layout.head_bytes,
        **{
            name: sections[section].offset if section in sections else -1
            for name, section in _OFFSETS.items()
        },
    }


def cache_args(kv: LayerKv) -> dict[str, Any]:
    """The tensors of a layer; its pages twice, as the two types that lie in them."""
    return {
        "pages_i8": kv.pages.view(torch.int8),
        "pages_hp": kv.pages.view(HP),
        "slabs": kv.slabs,
        "spare": kv.scratch,
        "outliers": kv.outliers,
        "k_static": kv.k_static,
        "v_static": kv.v_static,
    }


def step_args(step: KvStep) -> dict[str, Any]:
    return {
        "row_start": step.row_start,
        "context": step.context,
        "table": step.table,
        "slab": step.slab,
        "scratch": step.scratch,
        "table_width": step.table.shape[1],
        "sequences": step.table.shape[0],
    }
