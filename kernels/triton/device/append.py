"""New rows into the cache: norm, rotation, write, seal.

A *tile* is the part of one sequence's new rows that lies in one page; program (tile, head)
of `write_tiles` owns it, so no two programs write the same bytes. Tile i of a step belongs
to the last sequence b with scratch[b] + b <= i.
"""

import triton
import triton.language as tl

from kernels.layout import Code
from kernels.triton.device.quantise import (
    V_GROUP,
    quantise,
    quantise_four,
    quantise_groups,
    quantise_static,
)

HALF = tl.constexpr(Code.HALF.value)
CHANNEL = tl.constexpr(Code.CHANNEL.value)
TOKEN = tl.constexpr(Code.TOKEN.value)
STATIC = tl.constexpr(Code.STATIC.value)
SEARCH = tl.constexpr(64)  # sequences looked at together


@triton.jit
def sequence_of(tile, scratch, sequences):
    """The sequence that a tile belongs to."""
    found = -1
    for start in range(0, sequences, SEARCH):
        b = start + tl.arange(0, SEARCH)
        first = tl.load(scratch + b, mask=b < sequences, other=0) + b
        found += tl.sum(((b < sequences) & (first <= tile)).to(tl.int32), 0)
    return found


@triton.jit
def home_of(b, page, slab, table, table_width, FORMAT: tl.constexpr):
    """The slab, or the page, that sequence b's own page is in; -1: b only fills up a batch."""
    return tl.load(slab + b) if FORMAT == CHANNEL else tl.load(table + b * table_width + page)


@triton.jit
def rotated(
    x, at, channel, position, norm, cos, sin, eps, mask,
    D: tl.constexpr, AXIS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Values x[at + channel], normalised over AXIS (D channels) and rotated to `position`."""
    half: tl.constexpr = D // 2
    mate_channel = (channel + half) % D
    value = tl.load(x + at + channel, mask=mask, other=0.0)
    mate = tl.load(x + at + mate_channel, mask=mask, other=0.0)
    if NORM:
        factor = tl.rsqrt(tl.sum(value * value, AXIS, keep_dims=True) / D + eps)
        value = value * factor * tl.load(norm + channel)
        mate = mate * factor * tl.load(norm + mate_channel)
    turn = position * half + channel % half
    c = tl.load(cos + turn, mask=mask, other=0.0)
    s = tl.load(sin + turn, mask=mask, other=0.0)
    return value * c + tl.where(channel < half, -mate, mate) * s


@triton.jit
def rotate_queries(
    qkv, out, positions, norm, cos, sin, eps,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, NORM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row, block): BLOCK query heads of one row."""
    row = tl.program_id(0)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    channel = tl.arange(0, D)[None, :]
    mask = head < HEADS
    position = tl.load(positions + row)
    at = row * WIDTH + head * D
    q = rotated(qkv, at, channel, position, norm, cos, sin, eps, mask, D, 1, NORM)
    tl.store(out + row * HEADS * D + head * D + channel, q, mask=mask)


@triton.jit
def carry_open_rows(
    slabs, spare, row_start, context, slab, scratch,
    P: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Program (sequence, head): where a chunk runs past the open page, slab -> scratch.

    A launch of its own: the next one starts the slab anew with the chunk's last page.
    """
    b, head = tl.program_id(0), tl.program_id(1)
    before = tl.load(context + b)
    rows = tl.load(row_start + b + 1) - tl.load(row_start + b)
    home = tl.load(slab + b)
    stays = (before + rows - 1) // P == before // P
    if stays | (before % P == 0) | (home < 0):
        return
    i = tl.arange(0, 2 * D * P)
    source = (home * H + head) * 2 * D * P
    target = (tl.load(scratch + b) * H + head) * 2 * D * P
    tl.store(spare + target + i, tl.load(slabs + source + i))


@triton.jit
def open_block(
    slabs, spare, scratch, b, home, number, last, head,
    P: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
):  # fmt: skip
    """Where page `number` of a step's pages `0 … last` of sequence b waits in hp."""
    if number == last:
        block = slabs + (home * H + head) * (2 * D * P)
    else:
        block = spare + ((tl.load(scratch + b) + number) * H + head) * (2 * D * P)
    return block


@triton.jit
def take_outliers(
    k, outliers, plane, new, head, P: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr
):
    """k [D, P] without its outlier channels, whose `new` slots go to the plane [LANES, P]."""
    channel = tl.arange(0, D)[:, None]
    slot = tl.arange(0, P)
    for lane in tl.static_range(LANES):
        here = channel == tl.load(outliers + head * LANES + lane)
        kept = tl.sum(tl.where(here, k, 0.0), 0)
        tl.store(plane + lane * P + slot, kept.to(tl.float16), mask=new)
        k = tl.where(here, 0.0, k)
    return k


@triton.jit
def store_first(at, packed, D: tl.constexpr):
    """The further bits of a page's first token."""
    width: tl.constexpr = V_GROUP // 2
    groups: tl.constexpr = D // V_GROUP if D > V_GROUP else 1
    group, c = tl.arange(0, groups), tl.arange(0, width)
    tl.store(at + group[:, None] * width + c[None, :], packed)


@triton.jit
def seal(
    k, v, bytes_at, halves_at, outliers, head,
    P: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, K_BITS: tl.constexpr,
    V_BITS: tl.constexpr, V_AT: tl.constexpr, KS_AT: tl.constexpr, KZ_AT: tl.constexpr,
    VS_AT: tl.constexpr, VZ_AT: tl.constexpr, SHIFT_AT: tl.constexpr, KF_AT: tl.constexpr,
    VF_AT: tl.constexpr, PLANE_AT: tl.constexpr,
):  # fmt: skip
    """A full page k [D, P], v [P, D]: K with one scale per channel, V per token or group."""
    slot, c = tl.arange(0, P), tl.arange(0, D)
    if LANES > 0:
        plane = halves_at + PLANE_AT // 2
        k = take_outliers(k, outliers, plane, slot < P, head, P, D, LANES)
    if K_BITS == 4:
        q, scale, zero, first = quantise_four(k, D, P)
        pair = tl.arange(0, D // 2)
        tl.store(bytes_at + pair[:, None] * P + slot[None, :], q)
        store_first(bytes_at + KF_AT, first, D)
    else:
        q, scale, zero = quantise(k, 1, KZ_AT >= 0)
        tl.store(bytes_at + c[:, None] * P + slot[None, :], q)
    tl.store(halves_at + KS_AT // 2 + c[:, None], scale)
    if KZ_AT >= 0:
        tl.store(halves_at + KZ_AT // 2 + c[:, None], zero)
    if V_BITS == 4:
        q, scale, shift, first = quantise_groups(v, P, D)
        pair, group = tl.arange(0, P // 2), tl.arange(0, scale.shape[1])
        at = group[None, :] * P + slot[:, None]
        tl.store(bytes_at + V_AT + pair[:, None] * D + c[None, :], q)
        tl.store(halves_at + VS_AT // 2 + at, scale)
        tl.store(bytes_at + SHIFT_AT + at, shift)
        store_first(bytes_at + VF_AT, first, D)
    else:
        q, scale, zero = quantise(v, 1, VZ_AT >= 0)
        tl.store(bytes_at + V_AT + slot[:, None] * D + c[None, :], q)
        tl.store(halves_at + VS_AT // 2 + slot[:, None], scale)
        if VZ_AT >= 0:
            tl.store(halves_at + VZ_AT // 2 + slot[:, None], zero)


@triton.jit
def write_tokens(
    k, v, new, bytes_at, halves_at, outliers, head,
    P: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, V_AT: tl.constexpr,
    KS_AT: tl.constexpr, KZ_AT: tl.constexpr, VS_AT: tl.constexpr, VZ_AT: tl.constexpr,
    PLANE_AT: tl.constexpr,
):  # fmt: skip
    """The `new` slots of k [D, P], v [P, D], each with a scale of its own."""
    slot, c = tl.arange(0, P), tl.arange(0, D)
    across, down = new[None, :], new[:, None]
    if LANES > 0:
        plane = halves_at + PLANE_AT // 2
        k = take_outliers(k, outliers, plane, new, head, P, D, LANES)
    q, scale, zero = quantise(k, 0, KZ_AT >= 0)
    tl.store(bytes_at + c[:, None] * P + slot[None, :], q, mask=across)
    tl.store(halves_at + KS_AT // 2 + slot[None, :], scale, mask=across)
    if KZ_AT >= 0:
        tl.store(halves_at + KZ_AT // 2 + slot[None, :], zero, mask=across)
    q, scale, zero = quantise(v, 1, VZ_AT >= 0)
    tl.store(bytes_at + V_AT + slot[:, None] * D + c[None, :], q, mask=down)
    tl.store(halves_at + VS_AT // 2 + slot[:, None], scale, mask=down)
    if VZ_AT >= 0:
        tl.store(halves_at + VZ_AT // 2 + slot[:, None], zero, mask=down)


@triton.jit
def write_static(
    k, v, new, bytes_at, k_static, v_static, saturated, head,
    P: tl.constexpr, D: tl.constexpr, V_AT: tl.constexpr,
):  # fmt: skip
    """The `new` slots of k [D, P], v [P, D] under calibrated scales; counts what they clip."""
    slot, c = tl.arange(0, P), tl.arange(0, D)
    across, down = new[None, :], new[:, None]
    k_scale = tl.load(k_static + head * D + c)[:, None]
    v_scale = tl.load(v_static + head * D + c)[None, :]
    k_q, k_clipped = quantise_static(k, k_scale, across)
    v_q, v_clipped = quantise_static(v, v_scale, down)
    tl.store(bytes_at + c[:, None] * P + slot[None, :], k_q, mask=across)
    tl.store(bytes_at + V_AT + slot[:, None] * D + c[None, :], v_q, mask=down)
    if saturated is not None:
        tl.atomic_add(saturated, (tl.sum(new.to(tl.int32), 0) * 2 * D).to(tl.int64))
        tl.atomic_add(saturated + 1, (k_clipped + v_clipped).to(tl.int64))


@triton.jit
def write_halves(k, v, new, block, P: tl.constexpr, D: tl.constexpr):
    """The `new` slots of an hp block: K [D, P], then V [P, D]."""
    slot, c = tl.arange(0, P), tl.arange(0, D)
    k_at = block + c[:, None] * P + slot[None, :]
    v_at = block + D * P + slot[:, None] * D + c[None, :]
    tl.store(k_at, k.to(tl.float16), mask=new[None, :])
    tl.store(v_at, v.to(tl.float16), mask=new[:, None])


@triton.jit
def filled(k, v, new, block, P: tl.constexpr, D: tl.constexpr):
    """All of a full hp block, in float32: the new slots from registers, the others read."""
    slot, c = tl.arange(0, P), tl.arange(0, D)
    old = new == 0
    k_at = block + c[:, None] * P + slot[None, :]
    v_at = block + D * P + slot[:, None] * D + c[None, :]
    k_old = tl.load(k_at, mask=old[None, :], other=0.0)
    v_old = tl.load(v_at, mask=old[:, None], other=0.0)
    k = tl.where(new[None, :], k.to(tl.float16), k_old)
    v = tl.where(new[:, None], v.to(tl.float16), v_old)
    return k.to(tl.float32), v.to(tl.float32)


@triton.jit(do_not_specialize=["table_width", "sequences"])
def write_tiles(
    qkv, pages_i8, pages_hp, slabs, spare, outliers, k_static, v_static, saturated,
    row_start, context, table, slab, scratch, norm, cos, sin, eps, table_width, sequences,
    FORMAT: tl.constexpr, K_BITS: tl.constexpr, V_BITS: tl.constexpr, P: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, LANES: tl.constexpr, HEAD_BYTES: tl.constexpr,
    V_AT: tl.constexpr, KS_AT: tl.constexpr, KZ_AT: tl.constexpr, VS_AT: tl.constexpr,
    VZ_AT: tl.constexpr, SHIFT_AT: tl.constexpr, KF_AT: tl.constexpr, VF_AT: tl.constexpr,
    PLANE_AT: tl.constexpr, HEADS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Program (tile, head): K and V of the tile's rows, and the page if that fills it.

    pages_i8 and pages_hp are the same bytes as int8 and float16; *_AT are byte offsets
    inside a head block, -1 for what the format lacks.
    """
    tile, head = tl.program_id(0), tl.program_id(1)
    b = sequence_of(tile, scratch, sequences)
    first_row, before = tl.load(row_start + b), tl.load(context + b)
    after = before + tl.load(row_start + b + 1) - first_row
    number = tile - tl.load(scratch + b) - b
    page = before // P + number
    home = home_of(b, page, slab, table, table_width, FORMAT)
    if home < 0:
        return

    slot, c = tl.arange(0, P), tl.arange(0, D)
    position = page * P + slot
    new = (position >= before) & (position < after)
    at = (first_row + position - before) * ((HEADS + 2 * H) * D) + (HEADS + head) * D
    k = rotated(
        qkv, at[None, :], c[:, None], position[None, :], norm, cos, sin, eps, new[None, :],
        D, 0, NORM,
    )  # fmt: skip
    v = tl.load(qkv + at[:, None] + H * D + c[None, :], mask=new[:, None], other=0.0)

    page_id = tl.load(table + b * table_width + page).to(tl.int64)
    bytes_at = pages_i8 + (page_id * H + head) * HEAD_BYTES
    halves_at = pages_hp + (page_id * H + head) * (HEAD_BYTES // 2)
    if FORMAT == CHANNEL:
        last = (after - 1) // P - before // P
        block = open_block(slabs, spare, scratch, b, home, number, last, head, P, D, H)
        write_halves(k, v, new, block, P, D)
        if after >= (page + 1) * P:
            k_full, v_full = filled(k, v, new, block, P, D)
            seal(
                k_full, v_full, bytes_at, halves_at, outliers, head, P, D, LANES,
                K_BITS, V_BITS, V_AT, KS_AT, KZ_AT, VS_AT, VZ_AT, SHIFT_AT, KF_AT, VF_AT,
                PLANE_AT,
            )  # fmt: skip
    elif FORMAT == HALF:
        write_halves(k, v, new, halves_at, P, D)
    elif FORMAT == TOKEN:
        write_tokens(
            k, v, new, bytes_at, halves_at, outliers, head,
            P, D, LANES, V_AT, KS_AT, KZ_AT, VS_AT, VZ_AT, PLANE_AT,
        )  # fmt: skip
    else:
        write_static(k, v, new, bytes_at, k_static, v_static, saturated, head, P, D, V_AT)
