"""Which K channels are to blame: the error that a cache format makes, channel by channel.

The keys that the fp16 cache holds are written, as they are, through the other format's own
kernels and read back. So every layer's error is its own, and not what earlier layers did to
its input. Two kinds of channel are suspect: one whose own error stands out, and, where
channels share a scale, one that is so large that it takes the resolution from all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from engine.execution.calibration import OUTLIER_RATIO, outlier_ratios, read_back
from kernels.layout import KvStep, LayerKv
from kernels.weights import Rope
from playbooks.quality.arm import CHUNK, QualityArm

SHOWN = 16
SHARED_SCALES = ("token", "tensor")
"""K scales that cover several channels."""


@dataclass(frozen=True)
class Suspect:
    """A K channel that stands out of its head."""

    layer: int
    head: int
    """KV head."""
    channel: int
    ratio: float
    """How far it stands out: × the head's median."""
    why: str
    layer_error: float
    """RMS error of the layer's keys over their RMS."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_suspects(arm: QualityArm, plain: QualityArm, tokens: Sequence[int]) -> list[Suspect]:
    """The SHOWN worst of `arm`'s format, on one text. `plain`: the same model on fp16.

    `arm` must not be in use: its pages are written over.
    """
    size = arm.cache.layout.page_tokens
    length = len(tokens) // size * size  # whole pages: an open one holds no error
    if not arm.cache.layout.fmt.quantised or length == 0:
        return []
    found: list[Suspect] = []
    with plain.feed(list(tokens)[:length]) as held:
        for i, (source, target) in enumerate(
            zip(plain.cache.layers, arm.cache.layers, strict=True)
        ):
            k, v = read_back(source, held.pages, length)
            stored, _ = rewritten(arm, target, k, v)
            found += _of_layer(i, target, k, stored)
    return sorted(found, key=lambda s: -s.ratio)[:SHOWN]


def rewritten(
    arm: QualityArm, kv: LayerKv, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V [H, T, D] of a sequence, once through the format of `kv`."""
    spec, length = arm.loaded.spec, k.shape[1]
    pages = list(range(-(-length // kv.layout.page_tokens)))
    slab = 0 if kv.layout.fmt.open_page else -1
    for start in range(0, length, CHUNK):
        rows = min(CHUNK, length - start)
        keys, values = (x[:, start : start + rows].transpose(0, 1).flatten(1) for x in (k, v))
        queries = keys.new_zeros(rows, spec.heads * spec.head_dim)
        qkv = torch.cat((queries, keys, values), dim=1)
        step = KvStep.build(
            kv.layout.page_tokens, [rows], [start], [pages], [slab], kv.pages.device
        )
        arm.backend.ops.append_kv(qkv, kv, step, _no_rotation(length, k))
    return read_back(kv, pages, length)


def _no_rotation(positions: int, like: torch.Tensor) -> Rope:
    zeros = like.new_zeros(positions, like.shape[-1] // 2)
    return Rope(torch.ones_like(zeros), zeros)


def _of_layer(layer: int, kv: LayerKv, k: torch.Tensor, stored: torch.Tensor) -> list[Suspect]:
    """k and what came back of it, [H, T, D]."""
    error = (stored - k).square().mean(1).sqrt()  # [H, D]
    relative = float(error.square().mean().sqrt() / k.square().mean().sqrt())
    kinds = [("its own error stands out", outlier_ratios(error))]
    if kv.layout.fmt.k_scale in SHARED_SCALES:
        reach = outlier_ratios(k.abs().amax(1))
        for head, lane in (kv.outliers >= 0).nonzero().tolist():
            reach[head, kv.outliers[head, lane]] = 0.0  # kept in hp: it has no part in the scale
        kinds.insert(0, ("it stretches the scale that it shares", reach))
    found: dict[tuple[int, int], Suspect] = {}
    for why, ratios in kinds:
        for head, channel in (ratios > OUTLIER_RATIO).nonzero().tolist():
            ratio = round(float(ratios[head, channel]), 2)
            suspect = Suspect(layer, head, channel, ratio, why, relative)
            found.setdefault((head, channel), suspect)
    return list(found.values())
