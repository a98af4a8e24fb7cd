"""int8 and four bits in registers, rounding as `kernels.reference` does."""

import triton
import triton.language as tl

from kernels import layout

MIN_SCALE = tl.constexpr(2.0**-24)  # smallest positive float16
SHIFT = tl.constexpr(1.5 * 2.0**23)  # float32 has no fraction bits left up there
V_GROUP = tl.constexpr(layout.V_GROUP)
PARTS = tl.constexpr(float(layout.PARTS))
TOP = tl.constexpr(15.0)  # the largest code of four bits
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
def scale_for(step, odd):
    """The smallest float16 scale that is not below `step`; NaN where `odd` is."""
    return round_up_half(tl.maximum(step, MIN_SCALE) + odd)


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
    scale = scale_for(tl.math.div_rn(largest, 127.0), odd)
    return to_int8(round_even(tl.math.div_rn(centred, scale.to(tl.float32)))), scale, zero


@triton.jit
def quantise_four(x, R: tl.constexpr, N: tl.constexpr):
    """Rows of x [R, N], float16 values in float32, in four bits: packed codes [R/2, N], float16
    scale and zero [R, 1], further bits of column 0. Code 0 is the lowest value."""
    odd = tl.sum(x * 0.0, 1, keep_dims=True)
    zero = tl.min(x, 1, keep_dims=True)
    step = tl.math.div_rn(tl.max(x, 1, keep_dims=True) - zero, TOP)
    scale = scale_for(step, odd)
    steps = tl.math.div_rn(x - zero, scale.to(tl.float32))
    first = tl.sum(tl.where(tl.arange(0, N)[None, :] == 0, steps, 0.0), 1)
    packed = pack_rows(to_code(steps), R, N)
    return packed, scale, (zero + odd).to(tl.float16), pack_first(first, R)


@triton.jit
def quantise_groups(v, P: tl.constexpr, D: tl.constexpr):
    """v [P, D] in four bits: packed codes [P/2, D], float16 scale and int8 shift [P, groups],
    further bits of row 0."""
    width: tl.constexpr = V_GROUP if D > V_GROUP else D
    groups: tl.constexpr = D // width
    x = tl.reshape(v, (P, groups, width))
    odd = tl.sum(x * 0.0, 2, keep_dims=True)
    low = tl.minimum(tl.min(x, 2, keep_dims=True), 0.0)
    high = tl.maximum(tl.max(x, 2, keep_dims=True), 0.0)
    scale = scale_for(tl.math.div_rn(high - low, TOP - 1.0 / PARTS), odd)
    step = scale.to(tl.float32)
    shift = tl.ceil(tl.math.div_rn(low * -PARTS, step))
    shift = tl.where(shift == shift, shift, 0.0)
    steps = tl.reshape(tl.math.div_rn(x, step) + shift / PARTS, (P, D))
    first = tl.sum(tl.where(tl.arange(0, P)[:, None] == 0, steps, 0.0), 0)
    packed = pack_rows(to_code(steps), P, D)
    scale, shift = tl.reshape(scale, (P, groups)), tl.reshape(to_byte(shift), (P, groups))
    return packed, scale, shift, pack_first(first, D)


@triton.jit
def to_code(x):
    """The nearest code of four bits; 0 for NaN."""
    return tl.where(x == x, tl.clamp(round_even(x), 0.0, TOP), 0.0).to(tl.int32)


@triton.jit
def to_byte(x):
    """Whole numbers of 0 to 255 as the int8 of the same bits."""
    return x.to(tl.int32).to(tl.int8)


@triton.jit
def pack_rows(codes, R: tl.constexpr, N: tl.constexpr):
    """[R, N] codes of four bits -> int8 [R/2, N], the even row in the low half."""
    even, odd = tl.split(tl.permute(tl.reshape(codes, (R // 2, 2, N)), (0, 2, 1)))
    return to_byte(even | (odd << 4))


@triton.jit
def pack_first(steps, D: tl.constexpr):
    """[D] values in units of their scale -> int8 [D/32 or 1, 16]: what is missing between the
    nearest code and them, in PARTS; half a group in the low halves of bytes, half in the high."""
    row: tl.constexpr = V_GROUP // 2
    codes = to_code(round_even((steps - to_code(steps).to(tl.float32)) * PARTS) + PARTS / 2)
    if D >= V_GROUP:
        rows = tl.permute(tl.reshape(codes, (D // V_GROUP, 2, row)), (0, 2, 1))
        even, odd = tl.split(rows)
        packed = to_byte(even | (odd << 4))
    else:
        packed = to_byte(tl.reshape(codes, (1, row)))
    return packed


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
