"""The CPU backend's `stack`: all layers of a step and its head in one call into C."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import torch

from kernels.contract import Decoder, DecoderLayer
from kernels.cpu import gemm, kv, native, rowwise
from kernels.cpu.gemm import PackedWeight, WeightStruct
from kernels.cpu.native import FLOAT, POINTER, SIZE, floats, optional_floats, team
from kernels.errors import KernelError
from kernels.layout import KvStep, LayerKv

PARTS = ("gemm", "append_kv", "attention", "rowwise", "head")
"""What a stack's time is spent on, in the order of decoder.c."""


class _Layer(ctypes.Structure):
    _fields_ = [
        *((n, POINTER) for n in ("attn_norm", "qkv_bias", "q_norm")),
        *((n, POINTER) for n in ("k_norm", "out_bias", "mlp_norm")),
        *((n, WeightStruct) for n in ("qkv", "out", "gate_up", "down")),
        ("cache", POINTER),
    ]


class _Operations(ctypes.Structure):
    _fields_ = [(n, POINTER) for n in ("linear", "append_kv", "attend", "rms_norm", "silu_mul")]


class _Shape(ctypes.Structure):
    _fields_ = [
        *((n, SIZE) for n in ("layers", "hidden", "query_heads", "positions")),
        *((n, POINTER) for n in ("cos", "sin")),
        *((n, FLOAT) for n in ("eps", "scale")),
        ("norm", POINTER),
        ("head", WeightStruct),
    ]


class _Logits(ctypes.Structure):
    _fields_ = [("count", SIZE), ("rows", POINTER), ("out", POINTER)]


class _Room(ctypes.Structure):
    _fields_ = [
        ("buffers", POINTER),
        ("buffer_floats", SIZE),
        ("scratch", POINTER),
        ("scratch_floats", SIZE),
    ]


class CpuStack:
    """As `decoder.layer_by_layer`, with the structs of the C call made once.

    Everything that C is given an address of is kept alive here. Raises KernelError where the
    weights, the caches and the RoPE table do not fit one another.
    """

    def __init__(self, decoder: Decoder, caches: Sequence[LayerKv]) -> None:
        first, layout, rope = decoder.layers[0], caches[0].layout, decoder.rope
        self._kept, self._layout = (decoder, caches), layout
        self._vocab, self._hidden, self._rope = decoder.vocab, first.qkv.cols, rope
        heads = first.out.cols // layout.head_dim
        self._products = _unlike(decoder)
        self._caches = [kv.cache_struct(one) for one in caches]
        self._layers = (_Layer * len(caches))(
            *(
                _layer(weights, first, cache, struct)
                for weights, cache, struct in zip(decoder.layers, caches, self._caches, strict=True)
            )
        )
        positions, half = len(rope.cos), layout.head_dim // 2
        self._shape = _Shape(
            len(caches),
            self._hidden,
            heads,
            positions,
            floats("cos", rope.cos, (positions, half)),
            floats("sin", rope.sin, (positions, half)),
            decoder.eps,
            decoder.scale,
            floats("norm", decoder.norm, (self._hidden,)),
            _weight("head", decoder.head, self._vocab, self._hidden),
        )
        self._operations = _operations(kv.library_for(layout, heads))
        self._spent = (ctypes.c_int64 * len(PARTS))()

    def __call__(self, x: torch.Tensor, step: KvStep, logit_rows: torch.Tensor) -> torch.Tensor:
        rows = len(step.positions)
        self._rope.require(step.max_context)
        address = floats("x", x, (rows, self._hidden))
        wanted = logit_rows.to(torch.int64).contiguous()
        logits = torch.empty(len(wanted), self._vocab)
        shape, layers = ctypes.byref(self._shape), self._layers
        buffers = torch.empty(_library().decoder_buffers(shape, layers, rows))
        scratch = gemm.scratch(rows, self._products)
        failed = _library().decoder_layers(
            ctypes.byref(self._operations),
            shape,
            layers,
            ctypes.byref(kv.step_struct(step, self._layout)),
            address,
            rows,
            _Logits(len(wanted), wanted.data_ptr(), logits.data_ptr()),
            _Room(buffers.data_ptr(), len(buffers), scratch.data_ptr(), len(scratch)),
            self._spent,
            team(),
        )
        if failed == native.Failure.ROW_ID:
            given = wanted.tolist()
            raise KernelError(f"logit_rows: at most {rows} of 0…{rows - 1}, got {given[:8]}")
        native.demand("decoder", failed)
        return logits

    def spent_ns(self) -> dict[str, int]:
        """Nanoseconds since it was made, by PARTS."""
        return dict(zip(PARTS, self._spent, strict=True))


def stack(decoder: Decoder, kv: Sequence[LayerKv]) -> CpuStack:
    return CpuStack(decoder, kv)


def _layer(
    layer: DecoderLayer, first: DecoderLayer, cache: LayerKv, struct: ctypes.Structure
) -> _Layer:
    """Its shapes are those of the first layer: one set of buffers serves all."""
    hidden, mlp, d = first.qkv.cols, first.down.cols, cache.layout.head_dim
    queries = first.out.cols // d * d
    width = queries + 2 * cache.layout.kv_heads * d
    return _Layer(
        floats("attn_norm", layer.attn_norm, (hidden,)),
        optional_floats("qkv_bias", layer.qkv_bias, (width,)),
        optional_floats("q_norm", layer.q_norm, (d,)),
        optional_floats("k_norm", layer.k_norm, (d,)),
        optional_floats("out_bias", layer.out_bias, (hidden,)),
        floats("mlp_norm", layer.mlp_norm, (hidden,)),
        _weight("qkv", layer.qkv, width, hidden),
        _weight("out", layer.out, hidden, queries),
        _weight("gate_up", layer.gate_up, 2 * mlp, hidden),
        _weight("down", layer.down, hidden, mlp),
        ctypes.addressof(struct),
    )


def _weight(name: str, weight: PackedWeight, rows: int, cols: int) -> WeightStruct:
    if (weight.rows, weight.cols) != (rows, cols):
        raise KernelError(
            f"{name}: expected [{rows}, {cols}] of the caches' and the first layer's shape, "
            f"got [{weight.rows}, {weight.cols}]"
        )
    return weight.struct


def _unlike(decoder: Decoder) -> list[PackedWeight]:
    """Of the matrices whose products need equal scratch, one each."""
    each = [w for x in decoder.layers for w in (x.qkv, x.out, x.gate_up, x.down)]
    kinds = {(w.cols, w.struct.bits, w.struct.kept): w for w in (*each, decoder.head)}
    return list(kinds.values())


def _operations(cache_library: ctypes.CDLL) -> _Operations:
    found = (
        gemm.library().evewatch_linear,
        cache_library.append_kv,
        cache_library.attend,
        rowwise.library().rms_norm,
        rowwise.library().silu_mul,
    )
    return _Operations(*(ctypes.cast(one, POINTER).value for one in found))


@cache
def _library() -> ctypes.CDLL:
    """Built on first use. Raises BuildError."""
    structs = (WeightStruct, _Layer, _Operations, _Shape, _Logits, _Room)
    sizes = [ctypes.sizeof(one) for one in structs]
    loaded = native.library(("decoder.c",), {}, [*sizes, len(PARTS)])
    loaded.decoder_buffers.argtypes = [POINTER, POINTER, SIZE]
    loaded.decoder_buffers.restype = SIZE
    loaded.decoder_layers.argtypes = [
        *[POINTER] * 5, SIZE, _Logits, _Room, POINTER, POINTER,
    ]  # fmt: skip
    return loaded
