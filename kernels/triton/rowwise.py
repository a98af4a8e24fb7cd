"""rms_norm and silu_mul of the Triton backend."""

from __future__ import annotations

import torch

from kernels.triton.device import rowwise as device
from kernels.triton.launch import Launch, power_of_two

SILU_BLOCK = 1024


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    norm_launch(x, weight, out, eps).run()
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate_up = gate_up.contiguous()
    out = gate_up.new_empty((gate_up.shape[0], gate_up.shape[1] // 2))
    silu_launch(gate_up, out).run()
    return out


def norm_launch(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, eps: float) -> Launch:
    n = x.shape[-1]
    args = {"x": x, "weight": weight.contiguous(), "out": out, "n": n, "eps": eps}
    return Launch(device.rms_norm, (x.numel() // n, 1, 1), args, {"BLOCK": power_of_two(n)})


def silu_launch(gate_up: torch.Tensor, out: torch.Tensor) -> Launch:
    rows, n = out.shape
    block = min(SILU_BLOCK, power_of_two(n))
    args = {"gate_up": gate_up, "out": out, "n": n}
    return Launch(device.silu_mul, (rows, -(-n // block), 1), args, {"BLOCK": block})
