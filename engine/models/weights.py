"""A model file, opened: where its tensors are and what they mean.

`Checkpoint` is what the decoder reads. It knows tensors by their Hugging Face names;
each file format maps those to its own and reads one tensor at a time, so that loading
never holds the file twice. Nothing here unpickles.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from engine.errors import ModelError
from engine.models.spec import ModelSpec
from kernels.weights import RawWeight

if TYPE_CHECKING:
    from engine.text.tokenizer import Tokenizer

SAMPLE_BYTES = 4096
SAMPLES = 64


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file, not read yet."""

    name: str
    """Hugging Face name."""
    encoding: str
    """As its format writes it: F32, BF16, Q4_1 …"""
    shape: tuple[int, ...]
    """Rows first."""

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class Checkpoint(ABC):
    """Reading a tensor that is missing or has another shape raises ModelError."""

    path: Path
    spec: ModelSpec
    tensors: dict[str, TensorInfo]
    """By Hugging Face name."""
    notes: Sequence[str] = ()
    """What whoever loads it should know, one line each."""

    @abstractmethod
    def read(self, info: TensorInfo) -> RawWeight:
        """The tensor as the file encodes it; a vector is a matrix of one row."""

    @abstractmethod
    def tokenizer(self) -> Tokenizer: ...

    @property
    @abstractmethod
    def files(self) -> list[Path]:
        """Files that hold weights and configuration."""

    def matrix(self, name: str, rows: int, cols: int) -> RawWeight:
        """A weight [rows, cols]."""
        return self.read(self._expect(name, (rows, cols)))

    def vector(self, name: str, size: int) -> torch.Tensor:
        """float32 [size]."""
        return self.read(self._expect(name, (size,))).dequantise().reshape(size).clone()

    def _expect(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(f"{self.path}: tensor {name} is missing; the file is incomplete")
        if info.shape != shape:
            raise ModelError(
                f"{self.path}: tensor {name} is {list(info.shape)}, "
                f"its configuration needs {list(shape)}"
            )
        return info

    @property
    def file_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @property
    def encodings(self) -> dict[str, int]:
        """Parameters by encoding, the most first."""
        count: Counter[str] = Counter()
        for info in self.tensors.values():
            count[info.encoding] += info.elements
        return dict(count.most_common())


def identity(files: Sequence[Path]) -> str:
    """16 hex digits that tell model files apart without reading all of them.

    Covers every file's size and SAMPLES pieces of it spread evenly, both ends included:
    the header and, in files that are not tiny, a trace of every layer.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        stride = max((size - SAMPLE_BYTES) // (SAMPLES - 1), SAMPLE_BYTES)
        with path.open("rb") as file:
            for offset in range(0, size, stride):
                file.seek(offset)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
