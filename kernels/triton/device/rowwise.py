"""RMSNorm and SiLU gating, one row of the batch per program."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    mask = i < n
    value = tl.load(x + row * n + i, mask=mask, other=0.0)
    factor = tl.rsqrt(tl.sum(value * value, 0) / n + eps)
    tl.store(out + row * n + i, value * factor * tl.load(weight + i, mask=mask), mask=mask)


@triton.jit
def silu_mul(gate_up, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    gate = tl.load(gate_up + row * 2 * n + i, mask=mask, other=0.0)
    up = tl.load(gate_up + row * 2 * n + n + i, mask=mask, other=0.0)
    tl.store(out + row * n + i, gate * tl.sigmoid(gate) * up, mask=mask)
