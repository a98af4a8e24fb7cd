"""How values become codes: the definition of every rounding, in plain torch.

A scale is hp and rounded up, so nothing is clipped that has a scale of its own. What is not a
number makes its scale none, and so all that is read under it.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from kernels.layout import HP, PARTS, V_GROUP, PageLayout

MIN_SCALE = 2.0**-24
"""Smallest positive float16: a scale below it would round to zero and divide by it."""
TOP = 15
"""The largest code of four bits."""


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


def quantise(x: torch.Tensor, layout: PageLayout) -> dict[str, torch.Tensor]:
    """int8 values ("") of x [..., n], their hp "_scale" and hp "_zero" (0 when symmetric) [...].

    The scale is rounded up to hp, so no value is ever clipped. One NaN makes it NaN, and so
    all that is read of those values.
    """
    zero = torch.zeros_like(x[..., :1])
    if layout.zero_point:
        zero = ((x.amax(-1, keepdim=True) + x.amin(-1, keepdim=True)) / 2).to(HP).float()
    centred = x - zero
    scale = scale_for(centred.abs().amax(-1, keepdim=True) / 127)
    q = to_int8((centred / scale.float()).round())
    return {"": q, "_scale": scale.squeeze(-1), "_zero": zero.squeeze(-1).to(HP)}


def quantise_four(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """4 bits of hp values x [H, D, P]: packed codes ("") [H, D/2, P], hp "_scale" and "_zero"
    [H, D], and four bits more of the "_first" token.

    Code 0 is the lowest value itself. Nothing is clipped, NaN as in `quantise`.
    """
    zero = x.amin(-1, keepdim=True)
    scale = scale_for((x.amax(-1, keepdim=True) - zero) / TOP)
    steps = (x - zero) / scale.float()
    return {
        "": pack_rows(to_code(steps)),
        "_scale": scale.squeeze(-1),
        "_zero": zero.squeeze(-1).to(HP),
        "_first": pack_first(steps[..., 0]),
    }


def quantise_groups(v: torch.Tensor) -> dict[str, torch.Tensor]:
    """4 bits of v [H, P, D]: packed codes ("") [H, P/2, D], hp "_scale" and byte "_shift"
    [H, groups, P], and four bits more of the "_first" token.

    A group's range includes 0, which so lies between two codes or on one: `shift` says where.
    Nothing is clipped, NaN as in `quantise`.
    """
    d = v.shape[-1]
    x = F.pad(v, (0, -d % V_GROUP))
    x = x.reshape(*v.shape[:-1], -1, V_GROUP)  # [H, P, groups, V_GROUP]
    low, high = x.amin(-1, keepdim=True).clamp_max(0.0), x.amax(-1, keepdim=True).clamp_min(0.0)
    scale = scale_for((high - low) / (TOP - 1 / PARTS))
    shift = (low * -PARTS / scale.float()).ceil().nan_to_num(nan=0.0)
    steps = (x / scale.float() + shift / PARTS).flatten(-2)[..., :d]
    return {
        "": pack_rows(to_code(steps)),
        "_scale": scale.squeeze(-1).transpose(1, 2),
        "_shift": shift.squeeze(-1).transpose(1, 2).to(torch.uint8),
        "_first": pack_first(steps[:, 0]),
    }


def scale_for(step: torch.Tensor) -> torch.Tensor:
    """The smallest hp scale that is not below `step` (≥ 0)."""
    return round_up_hp(step).clamp_min(MIN_SCALE)


def to_code(x: torch.Tensor) -> torch.Tensor:
    """The nearest code of four bits, uint8; 0 for NaN."""
    return x.round().nan_to_num(nan=0.0).clamp(0, TOP).to(torch.uint8)


def pack_first(steps: torch.Tensor) -> torch.Tensor:
    """[H, D] values in units of their scale -> [H, groups, 16] bytes: what is missing between
    the nearest code and them, in PARTS."""
    missing = (steps - to_code(steps)) * PARTS
    codes = to_code(missing.round() + PARTS / 2)
    padded = F.pad(codes, (0, -codes.shape[-1] % V_GROUP))
    return pack_rows(padded.view(len(codes), -1, V_GROUP // 2))


def pack_rows(codes: torch.Tensor) -> torch.Tensor:
    """[..., R, n] codes of four bits -> [..., R/2, n] bytes, the even row in the low half."""
    return codes[..., ::2, :] | codes[..., 1::2, :] << 4


def unpack_rows(packed: torch.Tensor) -> torch.Tensor:
    """[..., R/2, n] bytes -> [..., R, n] codes."""
    return torch.stack((packed & TOP, packed >> 4), dim=-2).flatten(-3, -2)


def to_int8(q: torch.Tensor) -> torch.Tensor:
    """Whole numbers, clipped to ±127; 0 for NaN, which no cast defines."""
    return q.nan_to_num(nan=0.0).clamp(-127, 127).to(torch.int8)


def round_up_hp(x: torch.Tensor) -> torch.Tensor:
    """Smallest hp value that is not below x (x ≥ 0)."""
    near = x.to(HP)
    return torch.where(
        near.float() < x, torch.nextafter(near, torch.full_like(near, torch.inf)), near
    )
