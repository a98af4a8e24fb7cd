"""Weights on a GPU: dense 16-bit matrices for torch's own GEMMs.

A bfloat16 checkpoint stays bfloat16, exactly. Everything else becomes float16, which has
three bits more and holds what a quantised file means to within 2⁻¹¹ of each value.
Activations are rounded to the same type (float16 saturates), sums and results are float32.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from kernels.errors import KernelError
from kernels.weights import RawWeight, Rounding

LARGEST = torch.finfo(torch.float16).max


def pack(weight: RawWeight, rounding: Rounding | None = None) -> torch.Tensor:
    """[N, K] in bfloat16 or float16. Raises KernelError for products of integers."""
    if rounding is not None:
        raise KernelError("triton kernels have no products of integers; leave compute at f32")
    if weight.encoding in ("bf16", "f16"):
        return weight.data
    return weight.dequantise().clamp_(-LARGEST, LARGEST).half()


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `reference.linear`, for a weight of `pack`."""
    y = _product(_narrow(x, weight.dtype), weight)
    if bias is not None:
        y += bias
    return y if residual is None else residual.add_(y)


def embed(weight: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """As `reference.embed`, for a weight of `pack`."""
    return F.embedding(tokens, weight).float()


def _narrow(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.clamp(-LARGEST, LARGEST).half() if dtype == torch.float16 else x.to(dtype)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x [T, K] · weightᵀ, summed and returned in float32."""
    if x.is_cuda:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return F.linear(x.float(), weight.float())
