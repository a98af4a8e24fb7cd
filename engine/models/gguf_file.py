"""Reads GGUF: header into plain Python values, tensors as views of the mapped file.

Written here rather than taken from the `gguf` package because its reader makes one array
object per vocabulary string (5 s for a 49 k vocabulary, 0.1 s here) and meets a cut file
with whatever numpy raises. The package's constants and block decoders are used.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from engine.errors import ModelError
from kernels.weights import RawWeight

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_KEPT = {"Q8_0": "q8_0", "Q4_0": "q4_0", "Q4_1": "q4_1"}
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class GgufTensor:
    name: str
    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    """Rows first (the file writes columns first)."""
    offset: int
    """From the start of the file."""
    nbytes: int


class GgufFile:
    """Raises ModelError, in one line, for a file that is not whole and sound GGUF."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                if file.read(4) != MAGIC:
                    raise ModelError(f"{path}: not a GGUF file (no GGUF mark at its start)")
                # Private pages: torch wants writable memory, the file must not change.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
        header = _Header(self._map, path)
        self.metadata = header.metadata
        self.tensors = header.tensors

    def read(self, tensor: GgufTensor) -> RawWeight:
        """In its own encoding where kernels know it, else decoded to float32."""
        cols, rows = tensor.shape[-1], 1
        for size in tensor.shape[:-1]:
            rows *= size
        raw = np.frombuffer(self._map, np.uint8, tensor.nbytes, tensor.offset).reshape(rows, -1)
        name = tensor.kind.name
        if name in _FLOATS:
            return RawWeight.dense(torch.from_numpy(raw).view(_FLOATS[name]))
        if name in _KEPT:
            return RawWeight(_KEPT[name], rows, cols, torch.from_numpy(raw))
        try:
            values = dequantize(raw, tensor.kind)
        except NotImplementedError as error:
            raise ModelError(
                f"{self.path}: tensor {tensor.name} is {name}, an encoding that is not supported"
            ) from error
        return RawWeight.dense(torch.from_numpy(values.reshape(rows, cols)))


class _Header:
    """One pass over the header. Every read is checked against the end of the file."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data, self._path, self._at = data, path, len(MAGIC)
        version = self._number("I")
        if version not in VERSIONS:
            raise ModelError(f"{path}: GGUF version {version} is not supported (2 and 3 are)")
        tensors, pairs = self._number("Q"), self._number("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string()
            self.metadata[key] = self._value(self._number("I"))
        infos = [self._tensor_info() for _ in range(tensors)]
        start = self._data_start()
        self.tensors = {info[0]: self._place(start, *info) for info in infos}

    def _take(self, size: int) -> int:
        """Offset of the next `size` bytes, which are then behind."""
        at = self._at
        if size > len(self._data) - at:
            raise self._cut(at)
        self._at += size
        return at

    def _cut(self, at: int) -> ModelError:
        return ModelError(
            f"{self._path}: the GGUF header is cut short or damaged at byte {at}; "
            "fetch the file again"
        )

    def _number(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        return struct.unpack_from("<" + code, self._data, self._take(size))[0]

    def _string(self) -> str:
        size = self._number("Q")
        at = self._take(size)
        return self._data[at : at + size].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(self._number("I"), self._number("Q"))
        return self._number(self._scalar_code(kind))

    def _array(self, kind: int, count: int) -> list[Any]:
        if kind == _STRING:
            return self._strings(count)
        code = self._scalar_code(kind)
        at = self._take(struct.calcsize("<" + code) * count)
        return np.frombuffer(self._data, "<" + code, count, at).tolist()

    def _strings(self, count: int) -> list[str]:
        """A vocabulary: the one long loop of a header, so written out."""
        data, at, end = self._data, self._at, len(self._data)
        length = struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            if at + 8 > end or (stop := at + 8 + length(data, at)[0]) > end:
                raise self._cut(at)
            strings.append(data[at + 8 : stop].decode("utf-8", "replace"))
            at = stop
        self._at = at
        return strings

    def _scalar_code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ModelError(
                f"{self._path}: unknown value type {kind} at byte {self._at}; the file is damaged"
            )
        return _SCALARS[kind]

    def _tensor_info(self) -> tuple[str, list[int], int, int]:
        name, dims = self._string(), self._number("I")
        if not 1 <= dims <= 4:
            raise ModelError(f"{self._path}: tensor {name!r} has {dims} dimensions; damaged file")
        shape = [self._number("Q") for _ in range(dims)]
        return name, shape[::-1], self._number("I"), self._number("Q")

    def _data_start(self) -> int:
        align = self.metadata.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1:
            raise ModelError(f"{self._path}: alignment {align!r} is not a positive number")
        return -(-self._at // align) * align

    def _place(
        self, start: int, name: str, shape: list[int], number: int, offset: int
    ) -> GgufTensor:
        try:
            kind = GGMLQuantizationType(number)
        except ValueError as error:
            raise ModelError(f"{self._path}: tensor {name} has unknown type {number}") from error
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if shape[-1] % block:
            raise ModelError(
                f"{self._path}: tensor {name} has rows of {shape[-1]}, "
                f"no multiple of {kind.name}'s {block}"
            )
        nbytes = block_bytes
        for size in (*shape[:-1], shape[-1] // block):
            nbytes *= size
        if start + offset + nbytes > len(self._data):
            raise ModelError(
                f"{self._path}: cut short: tensor {name} ends at byte {start + offset + nbytes}, "
                f"the file at {len(self._data)}; fetch it again"
            )
        return GgufTensor(name, kind, tuple(shape), start + offset, nbytes)
