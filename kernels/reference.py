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

import kernels.integer
from kernels.contract import Decoder, Stack
from kernels.decoder import layer_by_layer
from kernels.integer import IntegerWeight
from kernels.layout import HP, PARTS, V_GROUP, KvStep, LayerKv, PageLayout
from kernels.quantise import quantise, quantise_four, quantise_groups, quantise_static, unpack_rows
from kernels.weights import RawWeight, Rope, Rounding

name = "reference"


# --- decoder -----------------------------------------------------------------------


def misfit(layout: PageLayout, query_heads: int) -> str | None:
    return None


def pack(weight: RawWeight, rounding: Rounding | None = None) -> torch.Tensor | IntegerWeight:
    """float32 [N, K], dense; or its integers."""
    return weight.dequantise() if rounding is None else IntegerWeight.of(weight, rounding)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor | IntegerWeight,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    if isinstance(weight, IntegerWeight):
        return kernels.integer.linear(x, weight, bias, residual)
    y = F.linear(x, weight, bias)
    return y if residual is None else residual.add_(y)


def embed(weight: torch.Tensor | IntegerWeight, tokens: torch.Tensor) -> torch.Tensor:
    if isinstance(weight, IntegerWeight):
        return weight.rows(tokens)
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
    """Stored pages `ids`, a sequence's from its first on, as float32 K and V, each
    [H, len(ids)·P, D]."""
    layout = kv.layout
    ids = ids.long()
    k, v = _values(kv, "k", ids), _values(kv, "v", ids)  # [n, H, D, P] and [n, H, P, D]
    if "k_out" in layout.sections:
        plane = layout.view(kv.pages, "k_out")[ids].float()  # [n, H, lanes, P]
        for head, lane in (kv.outliers >= 0).nonzero().tolist():
            k[:, head, kv.outliers[head, lane]] = plane[:, head, lane]
    return k.permute(1, 0, 3, 2).flatten(1, 2), v.transpose(0, 1).flatten(1, 2)


def _values(kv: LayerKv, side: str, ids: torch.Tensor) -> torch.Tensor:
    """K [n, H, D, P] or V [n, H, P, D] of pages `ids`, in float32, without the outlier plane."""
    layout = kv.layout
    stored = layout.view(kv.pages, side)[ids]
    if not layout.fmt.quantised:
        return stored.float()
    codes = (unpack_rows(stored) if stored.dtype == torch.uint8 else stored).float()
    if f"{side}_first" in layout.sections:
        first = codes[:1].select(-1 if side == "k" else -2, 0)  # [1, H, D]
        more = unpack_rows(layout.view(kv.pages, f"{side}_first")[ids[:1]]).flatten(-2)
        first += (more[..., : layout.head_dim].float() - PARTS / 2) / PARTS
    if f"{side}_shift" in layout.sections:
        codes = codes - _factor(kv, f"{side}_shift", ids) / PARTS
    x = codes * _factor(kv, f"{side}_scale", ids)
    return x + _factor(kv, f"{side}_zero", ids) if f"{side}_zero" in layout.sections else x


def _factor(kv: LayerKv, name: str, ids: torch.Tensor) -> torch.Tensor:
    """Scales, zeros or shifts of pages `ids`, shaped to broadcast over K [n, H, D, P] or V
    [n, H, P, D].

    A scale per channel lies along D, one per token along P.
    """
    side, layout = name[0], kv.layout
    along = layout.fmt.k_scale if side == "k" else layout.fmt.v_scale
    if name in layout.sections:
        factor = layout.view(kv.pages, name)[ids].float()  # [n, H, D or P] or [n, H, groups, P]
    else:
        factor = kv.static_scale(side).unsqueeze(0)  # [1, H, D]
    if along == "group":
        return factor.transpose(-1, -2).repeat_interleave(V_GROUP, -1)[..., : layout.head_dim]
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
    """hp block K [H, D, P], one scale per channel, and V [H, P, D], one per token or group."""
    k, v, fmt = k.float(), v.float(), kv.layout.fmt
    _move_outliers(kv, page_id, slice(None), k)
    k_parts = quantise_four(k) if fmt.k_bits == 4 else quantise(k, kv.layout)
    v_parts = quantise_groups(v) if fmt.v_bits == 4 else quantise(v, kv.layout)
    for side, parts in (("k", k_parts), ("v", v_parts)):
        for part, x in parts.items():
            _put(kv, page_id, side + part, x)


def _quantise_rows(
    kv: LayerKv, page_id: int, slots: slice, k: torch.Tensor, v: torch.Tensor
) -> None:
    """New rows k, v [rows, H, D] of a format that quantises at write -> `slots` of the page."""
    k = k.permute(1, 2, 0).clone()  # [H, D, rows]
    _move_outliers(kv, page_id, slots, k)
    for side, x in (("k", k.transpose(1, 2)), ("v", v.transpose(0, 1))):  # [H, rows, D]
        if f"{side}_scale" in kv.layout.sections:
            parts = quantise(x, kv.layout)
            q = parts.pop("")
            for part, values in parts.items():
                _put(kv, page_id, side + part, values, slots)
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
