"""Causal attention over pages: flash-decoding with a combine pass, and prefill tiles.

One program holds M query vectors of one KV head that see the same stored pages: the group
of one decode row, or the groups of up to ROWS rows of one tile (device/append.py). It walks
the pages PAGES at a time with an online softmax; pages are read as they are stored and turned
into float16 (or DOT) in registers alone. Its own page comes last: from the open block where
the format has one, masked by position everywhere.

    score = Σ_c q_c·s_c·k_c + Σ_outliers q_o·plane_o      out = Σ_t (w_t·v_scale_t)·v_t / Σ w_t
"""

import triton
import triton.language as tl

from kernels.triton.device.append import (
    CHANNEL,
    HALF,
    STATIC,
    TOKEN,
    home_of,
    open_block,
    sequence_of,
)
from kernels.triton.device.quantise import PARTS, V_GROUP

NOTHING = tl.constexpr(float("-inf"))
TINY = tl.constexpr(2.0**-24)


@triton.jit
def soften(score, top, total):
    """Online softmax: weights of the new scores, how far the past shrinks, new top and total."""
    higher = tl.maximum(top, tl.max(score, 1))
    shrink = tl.exp2(top - higher)
    weight = tl.exp2(score - higher[:, None])
    return weight, shrink, higher, total * shrink + tl.sum(weight, 1)


@triton.jit
def without_outliers(q, outliers, head, D: tl.constexpr, LANES: tl.constexpr):
    """q [M, D] with zeros where the plane alone counts."""
    channel = tl.arange(0, D)[None, :]
    for lane in tl.static_range(LANES):
        q = tl.where(channel == tl.load(outliers + head * LANES + lane), 0.0, q)
    return q


@triton.jit
def codes_at(pages, at, row, mask):
    """Codes of four bits, each of its own `row`; at: where its byte is."""
    return (tl.load(pages + at, mask=mask, other=0).to(tl.int32) >> (row % 2 * 4)) & 15


@triton.jit
def further_bits(pages, at, c, mask):
    """Of channels c of a sequence's first token, in units of its scales; 0 beyond the mask."""
    half: tl.constexpr = V_GROUP // 2
    bits = codes_at(pages, at + c // V_GROUP * half + c % half, c // half, mask)
    return tl.where(mask, (bits.to(tl.float32) - PARTS / 2) / PARTS, 0.0)


@triton.jit
def pages_scores(
    q, q_out, q_sum, pages_i8, pages_hp, block, here, first,
    FORMAT: tl.constexpr, K_BITS: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    PAGES: tl.constexpr, HEAD_BYTES: tl.constexpr, LANES: tl.constexpr,
    LANE_BLOCK: tl.constexpr, KS_AT: tl.constexpr, KZ_AT: tl.constexpr, KF_AT: tl.constexpr,
    PLANE_AT: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """q [M, D] against the K of stored pages -> float32 [M, PAGES * P].

    `block` [PAGES] counts head blocks from the first page on; `here` says which there are, and
    `first` [PAGES, P] where a sequence's first token is.
    """
    at, at_hp = block * HEAD_BYTES, block * (HEAD_BYTES // 2)
    c, slot, lane = tl.arange(0, D), tl.arange(0, P), tl.arange(0, LANE_BLOCK)
    n: tl.constexpr = PAGES * P
    k_at = c[None, :, None] * P + slot[None, None, :]
    there = here[:, None, None]
    if FORMAT == HALF:
        k = tl.load(pages_hp + at_hp[:, None, None] + k_at, mask=there, other=0.0).to(DOT)
    else:
        if K_BITS == 4:
            pair_at = (c // 2)[None, :, None] * P + slot[None, None, :]
            k = codes_at(pages_i8, at[:, None, None] + pair_at, c[None, :, None], there)
            first_at = at[:, None, None] + KF_AT
            k = k.to(tl.float32)
            k += further_bits(pages_i8, first_at, c[None, :, None], first[:, None, :])
        else:
            k = tl.load(pages_i8 + at[:, None, None] + k_at, mask=there, other=0)
        if FORMAT == CHANNEL:
            of_channel = at_hp[:, None] + c[None, :]
            scale = tl.load(pages_hp + of_channel + KS_AT // 2, mask=here[:, None], other=0.0)
            k = k.to(tl.float32) * scale.to(tl.float32)[:, :, None]
            if KZ_AT >= 0:
                zero = tl.load(pages_hp + of_channel + KZ_AT // 2, mask=here[:, None], other=0.0)
                k += zero.to(tl.float32)[:, :, None]
        k = k.to(DOT)
    k = tl.reshape(tl.permute(k, (1, 0, 2)), (D, n))
    score = tl.dot(q, k, input_precision="ieee")
    if FORMAT == TOKEN:
        of_token = at_hp[:, None] + slot[None, :]
        scale = tl.load(pages_hp + of_token + KS_AT // 2, mask=here[:, None], other=0.0)
        score *= tl.reshape(scale, (n,)).to(tl.float32)[None, :]
        if KZ_AT >= 0:
            zero = tl.load(pages_hp + of_token + KZ_AT // 2, mask=here[:, None], other=0.0)
            score += q_sum[:, None] * tl.reshape(zero, (n,)).to(tl.float32)[None, :]
    if LANES > 0:
        plane_at = at_hp[:, None, None] + PLANE_AT // 2
        plane_at += lane[None, :, None] * P + slot[None, None, :]
        used = there & (lane < LANES)[None, :, None]
        plane = tl.load(pages_hp + plane_at, mask=used, other=0.0).to(DOT)
        plane = tl.reshape(tl.permute(plane, (1, 0, 2)), (LANE_BLOCK, n))
        score = tl.dot(q_out, plane, score, input_precision="ieee")
    return score


@triton.jit
def grouped_values(
    pages_i8, pages_hp, at, at_hp, valid, first,
    P: tl.constexpr, D: tl.constexpr, PAGES: tl.constexpr, V_AT: tl.constexpr,
    VS_AT: tl.constexpr, SHIFT_AT: tl.constexpr, VF_AT: tl.constexpr,
):  # fmt: skip
    """V of four bits [PAGES, P, D], in units of the largest scale among them; and that scale."""
    c, slot = tl.arange(0, D), tl.arange(0, P)
    width: tl.constexpr = V_GROUP if D > V_GROUP else D
    each = tl.arange(0, P * (D // width))  # scales of a page, group by group
    all_at = at_hp[:, None] + VS_AT // 2 + each[None, :]
    of_all = tl.load(pages_hp + all_at, mask=tl.max(valid.to(tl.int32), 1)[:, None] > 0, other=0.0)
    largest = tl.maximum(tl.max(tl.max(of_all.to(tl.float32), 1), 0), TINY)
    there = valid[:, :, None]
    group = (c // width)[None, None, :] * P + slot[None, :, None]
    scale = tl.load(pages_hp + at_hp[:, None, None] + VS_AT // 2 + group, mask=there, other=0.0)
    shift = tl.load(pages_i8 + at[:, None, None] + SHIFT_AT + group, mask=there, other=0)
    shift = (shift.to(tl.int32) & 255).to(tl.float32) / PARTS
    pair_at = V_AT + (slot // 2)[None, :, None] * D + c[None, None, :]
    codes = codes_at(pages_i8, at[:, None, None] + pair_at, slot[None, :, None], there)
    more = further_bits(pages_i8, at[:, None, None] + VF_AT, c[None, None, :], first[:, :, None])
    return (codes.to(tl.float32) + more - shift) * (scale.to(tl.float32) / largest), largest


@triton.jit
def pages_mix(
    weight, acc, shift, pages_i8, pages_hp, block, here, valid, first,
    FORMAT: tl.constexpr, V_BITS: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    PAGES: tl.constexpr, HEAD_BYTES: tl.constexpr, V_AT: tl.constexpr, VS_AT: tl.constexpr,
    VZ_AT: tl.constexpr, SHIFT_AT: tl.constexpr, VF_AT: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """acc [M, D] plus the weighted V of stored pages; `shift` [M] gathers their zeros.

    Scales of a token are folded into the weights, those of groups into V. They are divided by
    the largest of them first, so that no product leaves float16's range.
    """
    at, at_hp = block * HEAD_BYTES, block * (HEAD_BYTES // 2)
    c, slot = tl.arange(0, D), tl.arange(0, P)
    n: tl.constexpr = PAGES * P
    v_at = slot[None, :, None] * D + c[None, None, :]
    there = here[:, None, None]
    if FORMAT == HALF:
        from_hp = pages_hp + at_hp[:, None, None] + V_AT // 2 + v_at
        v = tl.reshape(tl.load(from_hp, mask=there, other=0.0), (n, D))
        v = tl.where(tl.reshape(valid, (n,))[:, None], v, 0.0)
        acc = tl.dot(weight.to(DOT), v.to(DOT), acc, input_precision="ieee")
    elif V_BITS == 4:
        v, largest = grouped_values(
            pages_i8, pages_hp, at, at_hp, valid, first, P, D, PAGES, V_AT, VS_AT, SHIFT_AT, VF_AT
        )
        v = tl.reshape(v, (n, D)).to(DOT)
        acc += tl.dot(weight.to(DOT), v, input_precision="ieee") * largest
    else:
        v = tl.load(pages_i8 + at[:, None, None] + V_AT + v_at, mask=there, other=0)
        v = tl.reshape(v, (n, D)).to(DOT)
        if FORMAT == STATIC:
            acc = tl.dot(weight.to(DOT), v, acc, input_precision="ieee")
        else:
            of_token = at_hp[:, None] + slot[None, :]
            scale = tl.load(pages_hp + of_token + VS_AT // 2, mask=valid, other=0.0)
            scale = tl.reshape(scale, (n,)).to(tl.float32)
            largest = tl.maximum(tl.max(scale, 0), TINY)
            mixed = tl.dot((weight * (scale / largest)[None, :]).to(DOT), v, input_precision="ieee")
            acc += mixed * largest
            if VZ_AT >= 0:
                zero = tl.load(pages_hp + of_token + VZ_AT // 2, mask=valid, other=0.0)
                shift += tl.sum(weight * tl.reshape(zero, (n,)).to(tl.float32)[None, :], 1)
    return acc, shift


@triton.jit
def open_scores(q, own, page, length, P: tl.constexpr, D: tl.constexpr, DOT: tl.constexpr):
    """q [M, D] against the K of an hp block -> float32 [M, P]; and which slots are written."""
    slot, c = tl.arange(0, P), tl.arange(0, D)
    written = page * P + slot < length
    k = tl.load(own + c[:, None] * P + slot[None, :], mask=written[None, :], other=0.0)
    return tl.dot(q, k.to(DOT), input_precision="ieee"), written


@triton.jit
def open_mix(weight, acc, own, written, P: tl.constexpr, D: tl.constexpr, DOT: tl.constexpr):
    """acc [M, D] plus the weighted V of an hp block."""
    slot, c = tl.arange(0, P), tl.arange(0, D)
    at = own + D * P + slot[:, None] * D + c[None, :]
    v = tl.load(at, mask=written[:, None], other=0.0)
    return tl.dot(weight.to(DOT), v.to(DOT), acc, input_precision="ieee")


@triton.jit
def queries(
    q, outliers, k_static, vector, alive, head,
    FORMAT: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, LANE_BLOCK: tl.constexpr,
    DOT: tl.constexpr,
):  # fmt: skip
    """Query vectors [M, D], what the outlier plane is multiplied by, and their sums [M]."""
    c = tl.arange(0, D)
    x = tl.load(q + vector[:, None] * D + c[None, :], mask=alive[:, None], other=0.0)
    if FORMAT == STATIC:
        x *= tl.load(k_static + head * D + c)[None, :]
    q_out = x
    if LANES > 0:
        lane = tl.arange(0, LANE_BLOCK)
        channel = tl.load(outliers + head * LANES + lane, mask=lane < LANES, other=-1)[None, :]
        used = alive[:, None] & (channel >= 0)
        q_out = tl.load(q + vector[:, None] * D + channel, mask=used, other=0.0)
        # A page per channel has nothing in those channels, and an open page still needs them.
        if FORMAT == TOKEN:
            x = without_outliers(x, outliers, head, D, LANES)
    return x.to(DOT), q_out.to(DOT), tl.sum(x, 1)


@triton.jit(do_not_specialize=["table_width", "sequences"])
def attend_tiles(
    q, out, part, part_sums, pages_i8, pages_hp, slabs, spare, outliers, k_static, v_static,
    row_start, context, table, slab, scratch, scale, table_width, sequences,
    FORMAT: tl.constexpr, K_BITS: tl.constexpr, V_BITS: tl.constexpr, P: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, LANES: tl.constexpr, HEAD_BYTES: tl.constexpr,
    V_AT: tl.constexpr, KS_AT: tl.constexpr, KZ_AT: tl.constexpr, VS_AT: tl.constexpr,
    VZ_AT: tl.constexpr, SHIFT_AT: tl.constexpr, KF_AT: tl.constexpr, VF_AT: tl.constexpr,
    PLANE_AT: tl.constexpr, G: tl.constexpr, ROWS: tl.constexpr, M: tl.constexpr,
    PAGES: tl.constexpr, LANE_BLOCK: tl.constexpr, DECODE: tl.constexpr, SPLIT: tl.constexpr,
    DOT: tl.constexpr,
):  # fmt: skip
    """Program (piece, head, split). `scale` is that of the logits times log2(e).

    DECODE: piece b is the one row of sequence b; longer ones are left to the other launch.
    Otherwise: pieces of at most ROWS rows of one tile, the last ones (the longest) first.
    SPLIT: this program walks its share of the pages and leaves its sums for `combine`.
    """
    head, split, splits = tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    if DECODE:
        b = tl.program_id(0)
        number, first = 0, 0
    else:
        pieces: tl.constexpr = (P + ROWS - 1) // ROWS
        piece = tl.num_programs(0) - 1 - tl.program_id(0)
        b = sequence_of(piece // pieces, scratch, sequences)
        number = piece // pieces - tl.load(scratch + b) - b
        first = piece % pieces * ROWS
    first_row, before = tl.load(row_start + b), tl.load(context + b)
    rows = tl.load(row_start + b + 1) - first_row
    page = before // P + number
    position = tl.maximum(page * P, before) + first
    count = tl.minimum(tl.minimum((page + 1) * P, before + rows) - position, ROWS)
    home = home_of(b, page, slab, table, table_width, FORMAT)
    if ((rows == 1) != DECODE) | (count <= 0) | (home < 0):
        return

    m, c, slot = tl.arange(0, M), tl.arange(0, D), tl.arange(0, P)
    row, alive = m // G, m < count * G
    vector = (first_row + position - before + row) * (H * G) + head * G + m % G
    x, q_out, q_sum = queries(
        q, outliers, k_static, vector, alive, head, FORMAT, D, LANES, LANE_BLOCK, DOT
    )
    top = tl.full((M,), NOTHING, tl.float32)
    total = tl.zeros((M,), tl.float32)
    shift = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, D), tl.float32)
    stop = page if FORMAT == CHANNEL else page + 1
    start = 0
    if SPLIT:
        share = tl.cdiv(tl.cdiv(stop, PAGES), splits) * PAGES
        start = split * share
        stop = tl.minimum(stop, start + share)
    for i in range(start, stop, PAGES):
        index = i + tl.arange(0, PAGES)
        here = index < stop
        page_id = tl.load(table + b * table_width + index, mask=here, other=0).to(tl.int64)
        block = page_id * H + head
        key = index[:, None] * P + slot[None, :]
        score = pages_scores(
            x, q_out, q_sum, pages_i8, pages_hp, block, here, here[:, None] & (key == 0),
            FORMAT, K_BITS, P, D, PAGES, HEAD_BYTES, LANES, LANE_BLOCK, KS_AT, KZ_AT, KF_AT,
            PLANE_AT, DOT,
        )  # fmt: skip
        visible = tl.reshape(tl.where(here[:, None], key, position + P), (PAGES * P,))
        score = tl.where(visible[None, :] <= (position + row)[:, None], score * scale, NOTHING)
        weight, shrink, top, total = soften(score, top, total)
        valid = here[:, None] & (key < position + count)
        acc, shift = pages_mix(
            weight, acc * shrink[:, None], shift * shrink, pages_i8, pages_hp, block, here, valid,
            valid & (key == 0), FORMAT, V_BITS, P, D, PAGES, HEAD_BYTES, V_AT, VS_AT, VZ_AT,
            SHIFT_AT, VF_AT, DOT,
        )  # fmt: skip

    if FORMAT == CHANNEL:  # noqa: SIM102  (known at compile time; the next is not)
        if split == splits - 1:
            last = (before + rows - 1) // P - before // P
            own = open_block(slabs, spare, scratch, b, home, number, last, head, P, D, H)
            own_score, written = open_scores(x, own, page, position + count, P, D, DOT)
            seen = (page * P + slot)[None, :] <= (position + row)[:, None]
            own_score = tl.where(seen, own_score * scale, NOTHING)
            own_weight, own_shrink, top, total = soften(own_score, top, total)
            acc = open_mix(own_weight, acc * own_shrink[:, None], own, written, P, D, DOT)
            shift *= own_shrink

    acc += shift[:, None]
    if SPLIT:
        slice_at = ((b * H + head) * G + m % G) * splits + split
        tl.store(part + slice_at[:, None] * D + c[None, :], acc, mask=alive[:, None])
        tl.store(part_sums + slice_at * 2, top, mask=alive)
        tl.store(part_sums + slice_at * 2 + 1, total, mask=alive)
    else:
        acc /= total[:, None]
        if FORMAT == STATIC:
            acc *= tl.load(v_static + head * D + c)[None, :]
        tl.store(out + vector[:, None] * D + c[None, :], acc, mask=alive[:, None])


@triton.jit(do_not_specialize=["splits", "table_width"])
def combine(
    out, part, part_sums, v_static, row_start, context, table, slab, table_width, splits,
    FORMAT: tl.constexpr, P: tl.constexpr, D: tl.constexpr, H: tl.constexpr, G: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    """Program (sequence, query head): the shares of its pages become one row of `out`."""
    b, query = tl.program_id(0), tl.program_id(1)
    row = tl.load(row_start + b)
    rows = tl.load(row_start + b + 1) - row
    home = home_of(b, tl.load(context + b) // P, slab, table, table_width, FORMAT)
    if (rows != 1) | (home < 0):
        return
    i, c = tl.arange(0, MOST), tl.arange(0, D)
    there = i < splits
    slice_at = (b * H * G + query) * splits + i
    top = tl.load(part_sums + slice_at * 2, mask=there, other=NOTHING)
    total = tl.load(part_sums + slice_at * 2 + 1, mask=there, other=0.0)
    weight = tl.exp2(top - tl.max(top, 0))
    acc = tl.load(part + slice_at[:, None] * D + c[None, :], mask=there[:, None], other=0.0)
    mixed = tl.sum(acc * weight[:, None], 0) / tl.sum(total * weight, 0)
    if FORMAT == STATIC:
        mixed *= tl.load(v_static + query // G * D + c)
    tl.store(out + (row * H * G + query) * D + c, mixed)
