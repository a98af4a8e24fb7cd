"""How a decoder multiplies by its matrices: in float or in integers, and of how many bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.models.weights import Checkpoint, TensorInfo
from engine.text.tokenizer import Tokenizer
from kernels.decoder import product_bits
from kernels.weights import BLOCK_BYTES, RawWeight, Rounding


@dataclass(frozen=True)
class Products:
    """For quantised matrices; others are always multiplied in float."""

    compute: str = "f32"
    """f32 | int16 | mixed | int8"""
    columns: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By a product's name (kernels.decoder): columns that stay in float where 8 bits are taken."""

    def of(self, name: str, weight: RawWeight) -> Rounding | None:
        """What Operations.pack takes."""
        bits = product_bits(self.compute, name)
        if bits is None or weight.encoding not in BLOCK_BYTES:
            return None
        return Rounding(bits, tuple(self.columns.get(name, ())) if bits == 8 else ())


IN_FLOAT = Products()


class Quantised(Checkpoint):
    """A checkpoint whose float matrices become q8_0 as they are read."""

    def __init__(self, inner: Checkpoint) -> None:
        self._inner = inner
        self.path, self.spec, self.tensors = inner.path, inner.spec, inner.tensors
        self._changed: set[str] = set()

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        count = len(self._changed)
        said = f"weights = q8_0: {count} float matrices were quantised as they were loaded"
        return (*self._inner.notes, *([said] if count else []))

    def tokenizer(self) -> Tokenizer:
        return self._inner.tokenizer()

    @property
    def files(self) -> list[Path]:
        return self._inner.files

    def read(self, info: TensorInfo) -> RawWeight:
        weight = self._inner.read(info)
        if len(info.shape) == 1:
            return weight
        smaller = weight.to_q8_0()
        if smaller is not weight:
            self._changed.add(info.name)
        return smaller
