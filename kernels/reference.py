"""The definition of the cache and of the decoder's small operations, in plain torch.

Shapes are those of `kernels.contract.Operations`. Written to be read: one sequence and one page
at a time, on any device and for every shape that a layout can have.

Order within a layer: `append_kv` (QK norm, RoPE, write, seal), then `attend`.

The own-page rule: the query at position t reads pages before ⌊t/P⌋ as they are stored
and its own page in hp (formats with an open page). A result therefore depends on the
tokens alone, never on how they were split into steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional as F

from kernels.contract import Decoder, Stack
from kernels.decoder import layer_by_layer
from kernels.layout import HP, KvStep, LayerKv, PageLayout
from kernels.weights import RawWeight, Rope

MIN_SCALE = 2.0**-24
"""Smallest positive float16: a scale below it would round to zero and divide by it."""

name = "reference"


# --- decoder -----------------------------------------------------------------------


def misfit(layout: PageLayout, query_heads: int) -> str | None:
    return None


def pack(weight: RawWeight) -> torch.Tensor:
    """float32 [N, K], dense."""
    return weight.dequantise()


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    y = F.linear(x, weight, bias)
    return y if residual is None else residual.add_(y)


def embed(weight: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.embedding(tokens, weight)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def argmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.max(-1)


def apply_rope(x: torch.Tensor, positions: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Rotate pairs (i, i + D/2): x [T, heads, D] -> the same shape, a new tensor."""
    cos = rope.cos[positions.long()].unsqueeze(1)
    sin = rope.sin[positions.long()].unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def stack(decoder: Decoder, kv: Sequence[LayerKv]) -> Stack:
    return layer_by_layer(sys.modules[__name__], decoder, kv)


# --- cache -------------------------------------------------------------------------


def append_kv(
    qkv: torch.Tensor,
    kv: LayerKv,
    step: KvStep,
    rope: Rope,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    rope.require(step.max_context)
    h, d = kv.layout.kv_heads, kv.layout.head_dim
    heads = qkv.view(qkv.shape[0], -1, d)
    q, k, v = heads[:, : -2 * h], heads[:, -2 * h : -h], heads[:, -h:]
    if q_norm is not None:
        q = rms_norm(q, q_norm, eps)
    if k_norm is not None:
        k = rms_norm(k, k_norm, eps)
    q = apply_rope(q, step.positions, rope)
    k = apply_rope(k, step.positions, rope)
    write_kv(k, v, kv, step)
    seal(kv, step)
    return q


def write_kv(k: torch.Tensor, v: torch.Tensor, kv: LayerKv, step: KvStep) -> None:
    """New rows k, v [T, H, D] into their page, or into the open block of their page."""
    layout, p = kv.layout, kv.layout.page_tokens
    for b, page, first, rows in _touched(step):
        row, stop = first % p, first % p + rows.stop - rows.start
        new_k = k[rows].to(HP).permute(1, 2, 0)  # [H, D, rows]
        new_v = v[rows].to(HP).transpose(0, 1)  # [H, rows, D]
        if layout.fmt.open_page:
            _carry_open_rows(kv, step, b, page, row)
            block_k, block_v = hp_block(kv, step, b, page)
            block_k[:, :, row:stop], block_v[:, row:stop] = new_k, new_v
        elif not layout.fmt.quantised:
            page_id = int(step.table[b, page])
            layout.view(kv.pages, "k")[page_id, :, :, row:stop] = new_k
            layout.view(kv.pages, "v")[page_id, :, row:stop] = new_v
        else:
            slots = slice(row, stop)
            _quantise_rows(kv, int(step.table[b, page]), slots, k[rows], v[rows])


def seal(kv: LayerKv, step: KvStep) -> None:
    """Quantise every page whose last row was written in this step."""
    layout, p = kv.layout, kv.layout.page_tokens
    if not layout.fmt.open_page:
        return
    for b, page, first, rows in _touched(step):
        if first % p + rows.stop - rows.start == p:
            block_k, block_v = hp_block(kv, step, b, page)
            _seal_page(kv, int(step.table[b, page]), block_k, block_v)


def attend(q: torch.Tensor, kv: LayerKv, step: KvStep, scale: float) -> torch.Tensor:
    layout, p = kv.layout, kv.layout.page_tokens
    group = layout.group(q.shape[1])
    out = torch.empty_like(q)
    for b, page, first, rows in _touched(step):
        k, v = dequantise(kv, step.table[b, :page])  # [H, page·P, D]
        own_k, own_v = own_page(kv, step, b, page)
        last = first % p + rows.stop - rows.start
        k = torch.cat((k, own_k[:, :last]), dim=1).repeat_interleave(group, dim=0)
        v = torch.cat((v, own_v[:, :last]), dim=1).repeat_interleave(group, dim=0)
        logits = q[rows].transpose(0, 1) @ k.transpose(1, 2) * scale  # [Hq, rows, keys]
        key = torch.arange(k.shape[1], device=q.device)
        logits.masked_fill_(key > step.positions[rows, None], -torch.inf)
        out[rows] = (logits.softmax(-1) @ v).transpose(0, 1)
    return out.flatten(1)


def dequantise(kv: LayerKv, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Stored pages `ids` as float32 K and V, each [H, len(ids)·P, D]."""
    layout = kv.layout
    ids = ids.long()
    k = layout.view(kv.pages, "k")[ids].float()  # [n, H, D, P]
    v = layout.view(kv.pages, "v")[ids].float()  # [n, H, P, D]
    if layout.fmt.quantised:
        k = k * _factor(kv, "k_scale", ids)
        v = v * _factor(kv, "v_scale", ids)
        if "k_zero" in layout.sections:
            k = k + _factor(kv, "k_zero", ids)
            v = v + _factor(kv, "v_zero", ids)
    if "k_out" in layout.sections:
        plane = layout.view(kv.pages, "k_out")[ids].float()  # [n, H, lanes, P]
        for head, lane in (kv.outliers >= 0).nonzero().tolist():
            k[:, head, kv.outliers[head, lane]] = plane[:, head, lane]
    return k.permute(1, 0, 3, 2).flatten(1, 2), v.transpose(0, 1).flatten(1, 2)


def _factor(kv: LayerKv, name: str, ids: torch.Tensor) -> torch.Tensor:
    """Scales or zeros of pages `ids`, shaped to broadcast over K [n, H, D, P] or V [n, H, P, D].

    A scale per channel lies along D, one per token along P.
    """
    side, layout = name[0], kv.layout
    along = layout.fmt.k_scale if side == "k" else layout.fmt.v_scale
    if name in layout.sections:
        factor = layout.view(kv.pages, name)[ids].float()  # [n, H, D or P]
    else:
        factor = kv.static_scale(side).unsqueeze(0)  # [1, H, D]
    is_rows = (along == "token") == (side == "v")
    return factor.unsqueeze(-1 if is_rows else -2)


def own_page(kv: LayerKv, step: KvStep, b: int, page: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The page that its own queries read: float32 K and V, each [H, P, D]."""
    if not kv.layout.fmt.open_page:
        return dequantise(kv, step.table[b, page : page + 1])
    block_k, block_v = hp_block(kv, step, b, page)
    return block_k.float().transpose(1, 2), block_v.float()


def hp_block(kv: LayerKv, step: KvStep, b: int, page: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where sequence b's page waits in hp: K [H, D, P] and V [H, P, D], views.

    The last page that the step touches is the slab; the ones before it, which this step
    completes, are scratch.
    """
    layout, p = kv.layout, kv.layout.page_tokens
    before = int(step.context[b])
    last = (before + int(step.row_start[b + 1] - step.row_start[b]) - 1) // p
    if page == last:
        block = kv.slabs[int(step.slab[b])]
    else:
        block = kv.scratch[int(step.scratch[b]) + page - before // p]
    k = block[:, 0].view(layout.kv_heads, layout.head_dim, p)
    v = block[:, 1].view(layout.kv_heads, p, layout.head_dim)
    return k, v


def _carry_open_rows(kv: LayerKv, step: KvStep, b: int, page: int, row: int) -> None:
    """A chunk that runs past the open page moves the slab's rows into scratch first."""
    if row == 0:
        return
    block_k, _ = hp_block(kv, step, b, page)
    slab = kv.slabs[int(step.slab[b])]
    if block_k.data_ptr() != slab.data_ptr():
        kv.scratch[int(step.scratch[b])] = slab


def _touched(step: KvStep) -> Iterator[tuple[int, int, int, slice]]:
    """Each (sequence, page index, position of its first new row, batch rows) of the step."""
    p = step.page_tokens
    for b, before in enumerate(step.context.tolist()):
        start, stop = int(step.row_start[b]), int(step.row_start[b + 1])
        while start < stop:
            rows = min(p - before % p, stop - start)
            yield b, before // p, before, slice(start, start + rows)
            start, before = start + rows, before + rows


def _seal_page(kv: LayerKv, page_id: int, k: torch.Tensor, v: torch.Tensor) -> None:
    """hp block K [H, D, P], one scale per channel, and V [H, P, D], one per token -> page."""
    k, v = k.float(), v.float()
    _move_outliers(kv, page_id, slice(None), k)
    for side, x in (("k", k), ("v", v)):
        q, scale, zero = quantise(x, kv.layout)
        _put(kv, page_id, f"{side}", q)
        _put(kv, page_id, f"{side}_scale", scale.squeeze(-1))
        _put(kv, page_id, f"{side}_zero", zero.squeeze(-1))


def _quantise_rows(
    kv: LayerKv, page_id: int, slots: slice, k: torch.Tensor, v: torch.Tensor
) -> None:
    """New rows k, v [rows, H, D] of a format that quantises at write -> `slots` of the page."""
    k = k.permute(1, 2, 0).clone()  # [H, D, rows]
    _move_outliers(kv, page_id, slots, k)
    for side, x in (("k", k.transpose(1, 2)), ("v", v.transpose(0, 1))):  # [H, rows, D]
        if f"{side}_scale" in kv.layout.sections:
            q, scale, zero = quantise(x, kv.layout)
            _put(kv, page_id, f"{side}_scale", scale.squeeze(-1), slots)
            _put(kv, page_id, f"{side}_zero", zero.squeeze(-1), slots)
        else:
            q = quantise_static(x, kv.static_scale(side).unsqueeze(1), kv.saturated)
        if side == "k":
            _put(kv, page_id, "k", q.transpose(1, 2), slots)
        else:
            kv.layout.view(kv.pages, "v")[page_id, :, slots] = q


def _put(kv: LayerKv, page_id: int, name: str, x: torch.Tensor, slots: slice = slice(None)) -> None:
    """x [H, …, slots] into section `name`, where the format has it."""
    if name in kv.layout.sections:
        kv.layout.view(kv.pages, name)[page_id, ..., slots] = x


def _move_outliers(kv: LayerKv, page_id: int, slots: slice, k: torch.Tensor) -> None:
    """Outlier channels of k [H, D, slots] go to the page's hp plane and become zero in k."""
    if "k_out" not in kv.layout.sections:
        return
    plane = kv.layout.view(kv.pages, "k_out")[page_id]
    plane[:, :, slots] = 0.0
    for head, lane in (kv.outliers >= 0).nonzero().tolist():
        channel = int(kv.outliers[head, lane])
        plane[head, lane, slots] = k[head, channel].to(HP)
        k[head, channel] = 0.0


def quantise_static(
    x: torch.Tensor, scale: torch.Tensor, saturated: torch.Tensor | None
) -> torch.Tensor:
    """int8 values of x under fixed scales; what does not fit is clipped and counted.

    NaN, for which such a format has no room, becomes 0 and counts as clipped.
    """
    q = (x / scale).round()
    if saturated is not None:
        clipped = (~(q.abs() <= 127)).sum()
        saturated += torch.stack((torch.tensor(q.numel()), clipped)).to(saturated)
    return to_int8(q)


def quantise(
    x: torch.Tensor, layout: PageLayout
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """int8 values, hp scale and hp zero (0 when symmetric) over the last dimension.

    The scale is rounded up to hp, so no value is ever clipped. One NaN makes it NaN, and so
    all that is read of those values.
    """
    zero = torch.zeros_like(x[..., :1])
    if layout.zero_point:
        zero = ((x.amax(-1, keepdim=True) + x.amin(-1, keepdim=True)) / 2).to(HP).float()
    centred = x - zero
    scale = round_up_hp(centred.abs().amax(-1, keepdim=True) / 127).clamp_min(MIN_SCALE)
    return to_int8((centred / scale.float()).round()), scale, zero.to(HP)


def to_int8(q: torch.Tensor) -> torch.Tensor:
    """Whole numbers, clipped to ±127; 0 for NaN, which no cast defines."""
    return q.nan_to_num(nan=0.0).clamp(-127, 127).to(torch.int8)


def round_up_hp(x: torch.Tensor) -> torch.Tensor:
    """Smallest hp value that is not below x (x ≥ 0)."""
    near = x.to(HP)
    return torch.where(
        near.float() < x, torch.nextafter(near, torch.full_like(near, torch.inf)), near
    )
