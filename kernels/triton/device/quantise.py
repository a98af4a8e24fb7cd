"""Symmetric and zero-point int8 in registers, rounding as `kernels.reference` does."""

import triton
import triton.language as tl

MIN_SCALE = tl.constexpr(2.0**-24)  # smallest positive float16
SHIFT = tl.constexpr(1.5 * 2.0**23)  # float32 has no fraction bits left up there
FAR = tl.constexpr(1000.0)  # clipped anyway, and small enough to be rounded with SHIFT


@triton.jit
def round_even(x):
    """Nearest whole number, ties to even, for |x| < 2^22."""
    return (x + SHIFT) - SHIFT


@triton.jit
def round_up_half(x):
    """Smallest float16 that is not below x >= 0."""
    near = x.to(tl.float16)
    above = (near.to(tl.int16, bitcast=True) + 1).to(tl.float16, bitcast=True)
    return tl.where(near.to(tl.float32) < x, above, near)


@triton.jit
def quantise(x, AXIS: tl.constexpr, ZERO: tl.constexpr):
    """float32 x -> int8 values, float16 scale and float16 zero over AXIS (kept as size 1).

    A maximum passes NaN over on a GPU; `odd`, 0 where all are finite, carries it to the scale.
    """
    odd = tl.sum(x * 0.0, AXIS, keep_dims=True)
    high = tl.max(x, AXIS, keep_dims=True)
    low = tl.min(x, AXIS, keep_dims=True)
    zero = (high * 0.0).to(tl.float16)
    if ZERO:
        zero = ((high + low) * 0.5).to(tl.float16)
    centred = x - zero.to(tl.float32)
    largest = tl.max(tl.abs(centred), AXIS, keep_dims=True)
    scale = round_up_half(tl.maximum(tl.math.div_rn(largest, 127.0), MIN_SCALE) + odd)
    return to_int8(round_even(tl.math.div_rn(centred, scale.to(tl.float32)))), scale, zero


@triton.jit
def to_int8(q):
    """Whole numbers, clipped to ±127; 0 for NaN."""
    return tl.where(q == q, tl.clamp(q, -127.0, 127.0), 0.0).to(tl.int8)


@triton.jit
def quantise_static(x, scale, counts):
    """int8 values of x under fixed scales, and how many of those that count were clipped."""
    q = round_even(tl.clamp(tl.math.div_rn(x, scale), -FAR, FAR))
    clipped = tl.sum(tl.sum((counts & ((tl.abs(q) <= 127.0) == 0)).to(tl.int32), 1), 0)
    return to_int8(q), clipped
