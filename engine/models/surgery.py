"""Makes a model with outlier channels out of one without, and it stays the same function.

Attention only ever sees q · k. So K channels may grow by a factor f when the Q channels that
meet them shrink by it; and because RoPE turns the channels (i, i + D/2) into one another,
both of a pair must. With f a power of two even the rounding stays the same. What changes is
how hard the keys are to quantise: quality checks need such a model to prove that they would
notice, because the models at hand may have no outliers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from engine.models.weights import Checkpoint, TensorInfo
from engine.text.tokenizer import Tokenizer
from kernels.weights import BLOCK, BLOCK_BYTES, FLOAT, RawWeight


@dataclass(frozen=True)
class Pair:
    """K channels `channel` and `channel` + D/2 of one KV head."""

    layer: int
    head: int
    channel: int

    def channels(self, head_dim: int) -> tuple[int, int]:
        return self.channel, self.channel + head_dim // 2


class WithOutliers(Checkpoint):
    """A checkpoint whose K is `factor` times as large in `pairs`, and Q as much smaller.

    `factor` must be a power of two, else ValueError. Models with a norm over K (Qwen3) undo
    any scaling of its projection, so there the norm's weights grow: they are shared, and the
    pair stands out in every KV head of the layer.
    """

    def __init__(self, inner: Checkpoint, pairs: Sequence[Pair], factor: float) -> None:
        if factor <= 0 or np.frexp(factor)[0] != 0.5:
            raise ValueError(f"factor {factor} is not a power of two")
        self._inner = inner
        self.path, self.spec, self.tensors = inner.path, inner.spec, inner.tensors
        self._factors: dict[str, torch.Tensor] = {}
        for pair in pairs:
            self._enlarge(pair, factor)

    @property
    def files(self) -> list[Path]:
        return self._inner.files

    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer()

    def read(self, info: TensorInfo) -> RawWeight:
        weight = self._inner.read(info)
        factors = self._factors.get(info.name)
        if factors is None:
            return weight
        if len(info.shape) == 1:
            return RawWeight.dense(weight.dequantise() * factors)
        return scale_rows(weight, factors)

    def _enlarge(self, pair: Pair, factor: float) -> None:
        """Note by how much each row of Q's and K's tensors changes."""
        spec, at = self.spec, f"model.layers.{pair.layer}.self_attn."
        inside = pair.layer < spec.layers and pair.head < spec.kv_heads
        if not inside or 2 * pair.channel >= spec.head_dim:
            raise ValueError(f"{pair} is outside of {spec.name}")
        if spec.qk_norm:
            self._scale(at + "k_norm.weight", 1, [0], pair, factor)
            self._scale(at + "q_norm.weight", 1, [0], pair, 1 / factor)
            return
        group = spec.heads // spec.kv_heads
        queries = range(pair.head * group, (pair.head + 1) * group)
        for end in ("weight", "bias"):
            self._scale(f"{at}k_proj.{end}", spec.kv_heads, [pair.head], pair, factor)
            self._scale(f"{at}q_proj.{end}", spec.heads, queries, pair, 1 / factor)

    def _scale(self, name: str, of: int, heads: Sequence[int], pair: Pair, factor: float) -> None:
        """The pair's rows in `heads`, out of `of`, of one tensor."""
        dim = self.spec.head_dim
        factors = self._factors.setdefault(name, torch.ones(of * dim))
        for head in heads:
            for channel in pair.channels(dim):
                factors[head * dim + channel] *= factor


def scale_rows(weight: RawWeight, factors: torch.Tensor) -> RawWeight:
    """Each row times its factor [rows], a power of two; in the same encoding if that is exact.

    Block scales are float16: where one would leave its range, the matrix becomes float32.
    """
    wide = factors[:, None]
    if weight.encoding in FLOAT:
        exact = weight.data.float() * wide
        same = exact.to(weight.data.dtype)
        return RawWeight.dense(same if torch.equal(same.float(), exact) else exact)
    return _scale_blocks(weight, factors.numpy()) or RawWeight.dense(weight.dequantise() * wide)


def _scale_blocks(weight: RawWeight, factors: np.ndarray) -> RawWeight | None:
    """Every block starts with its scale, and q4_1's minimum follows: both are float16."""
    size = BLOCK_BYTES[weight.encoding]
    blocks = weight.data.numpy().reshape(weight.rows, weight.cols // BLOCK, size).copy()
    head = 4 if weight.encoding == "q4_1" else 2
    scales = blocks[..., :head].copy().view(np.float16).astype(np.float32)
    exact = scales * factors[:, None, None].astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        scaled = exact.astype(np.float16)
    if not np.array_equal(scaled.astype(np.float32), exact):
        return None
    blocks[..., :head] = scaled.view(np.uint8)
    data = torch.from_numpy(blocks.reshape(weight.data.shape))
    return RawWeight(weight.encoding, weight.rows, weight.cols, data)
