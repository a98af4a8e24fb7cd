"""The CPU backend's `stack`: all layers of a step and its head in one call into C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path

import torch

from kernels.cpu import gemm, kv, rowwise
from kernels.cpu.build import load
from kernels.decoder import Decoder, DecoderLayer
from kernels.errors import KernelError
from kernels.layout import KvStep, LayerKv

PARTS = ("gemm", "append_kv", "attention", "rowwise", "head")
"""What a stack's time is spent on, in the order of decoder.c."""

_NOT_A_ROW = 2
"""What decoder.c returns then."""

_P, _I = ctypes.c_void_p, ctypes.c_int64


class _Weight(ctypes.Structure):
    _fields_ = [("encoding", _I), ("rows", _I), ("cols", _I), ("data", _P)]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((n, _P) for n in ("attn_norm", "qkv_bias", "q_norm", "k_norm", "out_bias", "mlp_norm")),
        *((n, _Weight) for n in ("qkv", "out", "gate_up", "down")),
        ("cache", _P),
    ]


class _Operations(ctypes.Structure):
    _fields_ = [(n, _P) for n in ("linear", "append_kv", "attend", "rms_norm", "silu_mul")]


class _Shape(ctypes.Structure):
    _fields_ = [
        *((n, _I) for n in ("layers", "hidden", "query_heads")),
        *((n, _P) for n in ("cos", "sin")),
        *((n, ctypes.c_float) for n in ("eps", "scale")),
        ("norm", _P),
        ("head", _Weight),
    ]


class _Logits(ctypes.Structure):
    _fields_ = [("count", _I), ("rows", _P), ("out", _P)]


class _Buffers(ctypes.Structure):
    _fields_ = [(n, _P) for n in ("normed", "qkv", "q", "mixed", "gate_up", "gated", "scratch")]


class CpuStack:
    """As `decoder.layer_by_layer`, with the structs of the C call made once.

    Everything that C is given an address of is kept alive here.
    """

    def __init__(self, decoder: Decoder, caches: Sequence[LayerKv]) -> None:
        layers, rope = decoder.layers, decoder.rope
        first, layout = layers[0], caches[0].layout
        self._kept = (decoder, caches)
        self._vocab = decoder.vocab
        self._hidden = first.qkv.cols
        heads = first.qkv.rows // layout.head_dim - 2 * layout.kv_heads
        self._widths = _aligned(
            first.qkv.cols,
            max(first.qkv.rows, first.qkv.cols),
            heads * layout.head_dim,
            heads * layout.head_dim,
            first.gate_up.rows,
            first.down.cols,
        )
        self._widest = max(first.qkv.cols, first.out.cols, first.down.cols)
        self._positions = rope.cos.shape[0]
        self._caches = [kv.cache_struct(one) for one in caches]
        self._layers = (_Layer * len(layers))(
            *(_layer(one, cache) for one, cache in zip(layers, self._caches, strict=True))
        )
        cos, sin = _address(rope.cos), _address(rope.sin)
        self._shape = _Shape(
            len(layers),
            self._hidden,
            heads,
            cos,
            sin,
            decoder.eps,
            decoder.scale,
            _address(decoder.norm),
            _weight(decoder.head),
        )
        self._operations = _operations(kv.library_for(caches[0], heads))
        self._spent = (ctypes.c_int64 * len(PARTS))()

    def __call__(self, x: torch.Tensor, step: KvStep, logit_rows: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        if step.max_context > self._positions:
            raise KernelError(
                f"position {step.max_context - 1} is past the RoPE table of {self._positions}; "
                "build it for the longest context"
            )
        if x.shape[1] != self._hidden or x.dtype != torch.float32 or not x.is_contiguous():
            raise KernelError(f"x: expected contiguous float32 [rows, {self._hidden}]")
        wanted = logit_rows.to(torch.int64).contiguous()
        logits = torch.empty(len(wanted), self._vocab)
        scratch = gemm.scratch(rows, self._widest)
        room = torch.empty(rows * sum(self._widths))
        starts = accumulate(self._widths[:-1], initial=0)
        buffers = (room.data_ptr() + room.itemsize * rows * start for start in starts)
        failed = _library().decoder_layers(
            ctypes.byref(self._operations),
            ctypes.byref(self._shape),
            self._layers,
            ctypes.byref(kv.step_struct(step)),
            _P(x.data_ptr()),
            _I(rows),
            _Logits(len(wanted), wanted.data_ptr(), logits.data_ptr()),
            _Buffers(*buffers, scratch.data_ptr()),
            self._spent,
            torch.get_num_threads(),
        )
        if failed == _NOT_A_ROW:
            given = wanted.tolist()
            raise KernelError(f"logit_rows: at most {rows} of 0…{rows - 1}, got {given[:8]}")
        if failed:
            raise MemoryError("decoder: no memory for the tiles of a step")
        return logits

    def spent_ns(self) -> dict[str, int]:
        """Nanoseconds since it was made, by PARTS."""
        return dict(zip(PARTS, self._spent, strict=True))


def stack(decoder: Decoder, caches: Sequence[LayerKv]) -> CpuStack:
    return CpuStack(decoder, caches)


def _aligned(*widths: int) -> list[int]:
    """Whole cache lines of floats, so that no buffer begins amid one."""
    return [-(-width // 16) * 16 for width in widths]


def _layer(layer: DecoderLayer, cache: ctypes.Structure) -> _Layer:
    vectors = (
        layer.attn_norm, layer.qkv_bias, layer.q_norm, layer.k_norm, layer.out_bias, layer.mlp_norm,
    )  # fmt: skip
    matrices = (layer.qkv, layer.out, layer.gate_up, layer.down)
    return _Layer(
        *(None if one is None else _address(one) for one in vectors),
        *(_weight(one) for one in matrices),
        ctypes.addressof(cache),
    )


def _weight(weight: gemm.PackedWeight) -> _Weight:
    code = gemm.ENCODINGS.index(weight.encoding)
    return _Weight(code, weight.rows, weight.cols, weight.data.data_ptr())


def _address(x: torch.Tensor) -> int:
    if x.dtype != torch.float32 or not x.is_contiguous():
        raise KernelError(f"expected contiguous float32, got {x.dtype} {list(x.shape)}")
    return x.data_ptr()


def _operations(cache_library: ctypes.CDLL) -> _Operations:
    found = (
        gemm.library().evewatch_linear,
        cache_library.append_kv,
        cache_library.attend,
        rowwise.library().rms_norm,
        rowwise.library().silu_mul,
    )
    return _Operations(*(ctypes.cast(one, _P).value for one in found))


@cache
def _library() -> ctypes.CDLL:
    """Built on first use. Raises BuildError."""
    return load([Path(__file__).with_name("decoder.c")], {})
