"""C is told sizes and ids: what does not fit is a KernelError, and nothing is read or written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from builders import make_kv, make_layout, tiny_loaded
from kernels import cpu
from kernels.cpu import gemm, kv, native
from kernels.errors import BuildError, KernelError
from kernels.layout import Code, KvStep
from kernels.weights import RawWeight, Rope
from kv_builders import Shape, Variant, backend, make_cache, random_qkv, rope

SHAPE = Shape()
OPEN, PLAIN = Variant("int8_channel"), Variant("fp16")


def step(**changes: list[int] | list[list[int]]) -> KvStep:
    """Two sequences: 20 rows from position 4 (a page completes), one row from position 0."""
    made = KvStep.build(SHAPE.page, [20, 1], [4, 0], [[0, 1], [2, 3]], [0, 1])
    return replace(made, **{n: torch.tensor(x, dtype=torch.int32) for n, x in changes.items()})


ODD_STEPS = {
    "a page past the cache": ({"table": [[0, 1], [99, 3]]}, PLAIN, "page is not one"),
    "no page": ({"table": [[0, 1], [-1, 3]]}, PLAIN, "page is not one"),
    "a sealed page past the cache": ({"table": [[4, 1], [2, 3]]}, OPEN, "page is not one"),
    "a table too short": ({"table": [[0], [2]]}, PLAIN, "too short"),
    "a slab past the cache": ({"slab": [0, 2]}, OPEN, "slab is not one"),
    "no slab": ({"slab": [-1, 1]}, OPEN, "slab is not one"),
    "scratch past its end": ({"scratch": [500, 0]}, OPEN, "more scratch blocks"),
    "rows that fall": ({"row_start": [0, 25, 21]}, PLAIN, "row_start does not rise"),
    "rows that are not there": ({"row_start": [0, 20, 22]}, PLAIN, "row_start does not rise"),
    "rows before the first": ({"row_start": [1, 20, 21]}, PLAIN, "row_start does not rise"),
    "a context below zero": ({"context": [-1, 0]}, PLAIN, "row_start does not rise"),
    "positions of others": ({"positions": list(range(21))}, PLAIN, "position"),
}


@pytest.mark.parametrize(("changes", "variant", "message"), ODD_STEPS.values(), ids=ODD_STEPS)
def test_a_step_that_names_what_is_not_there_is_refused(
    changes: dict[str, list[int]], variant: Variant, message: str
) -> None:
    run, odd = backend("cpu"), step(**changes)
    cache = make_cache(variant, SHAPE, sequences=2, tokens=31)
    before = cache.pages.clone(), cache.slabs.view(torch.int16).clone()
    with pytest.raises(KernelError, match=message):
        run.append_kv(random_qkv(21, SHAPE), cache, odd, rope(SHAPE))
    with pytest.raises(KernelError, match=message):
        run.attend(torch.zeros(21, SHAPE.query_heads, SHAPE.head_dim), cache, odd, 1.0)
    assert torch.equal(cache.pages, before[0])
    assert torch.equal(cache.slabs.view(torch.int16), before[1])


ODD_TENSORS: dict[str, tuple[Callable[[dict], dict], str]] = {
    "a row too few": (lambda a: {"qkv": a["qkv"][:20]}, "qkv"),
    "doubles": (lambda a: {"qkv": a["qkv"].double()}, "qkv"),
    "a norm of another size": (lambda a: {"q_norm": torch.ones(SHAPE.head_dim - 1)}, "q_norm"),
    "a norm of another type": (lambda a: {"k_norm": torch.ones(SHAPE.head_dim).half()}, "k_norm"),
    "a table of another head size": (lambda a: {"rope": rope(Shape(head_dim=32))}, "cos"),
    "a table that is cut": (lambda a: {"rope": Rope(a["rope"].cos, a["rope"].sin[:5])}, "sin"),
    "a strided norm": (lambda a: {"q_norm": torch.ones(2 * SHAPE.head_dim)[::2]}, "q_norm"),
}


@pytest.mark.parametrize(("change", "name"), ODD_TENSORS.values(), ids=ODD_TENSORS)
def test_a_tensor_of_another_shape_is_refused_by_name(
    change: Callable[[dict], dict], name: str
) -> None:
    arguments = {"qkv": random_qkv(21, SHAPE), "rope": rope(SHAPE)}
    cache = make_cache(PLAIN, SHAPE, sequences=2, tokens=31)
    with pytest.raises(KernelError, match=name):
        backend("cpu").append_kv(**(arguments | {"kv": cache, "step": step()} | change(arguments)))


def test_a_step_of_arrays_that_do_not_belong_together_is_refused() -> None:
    for name in ("slab", "scratch", "row_start", "table"):
        with pytest.raises(KernelError, match=f"step {name}"):
            step(**{name: [0]})
    with pytest.raises(KernelError, match="step positions: expected contiguous int32"):
        replace(step(), positions=torch.arange(21))


def test_a_step_in_other_pages_is_refused() -> None:
    cache = make_cache(PLAIN, SHAPE, sequences=2, tokens=31)
    with pytest.raises(KernelError, match="pages of 32 tokens does not fit a cache in pages of 16"):
        backend("cpu").attend(
            torch.zeros(21, SHAPE.query_heads, SHAPE.head_dim),
            cache,
            replace(step(), page_tokens=32),
            1.0,
        )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"mlp_norm": torch.ones(63)}, "mlp_norm"),
        ({"qkv_bias": torch.ones(3)}, "qkv_bias"),
        ({"out": (64, 32)}, "out"),
        ({"gate_up": (96, 64)}, "gate_up"),
        ({"down": (64, 64)}, "down"),
    ],
)
def test_a_layer_of_another_shape_than_the_first_is_refused(
    changes: dict[str, Any], name: str
) -> None:
    """One set of buffers serves all layers: a wider one would run past their end."""
    run = backend("cpu")
    loaded = tiny_loaded(run)
    decoder, layout = loaded.model._decoder, make_layout(loaded.spec)
    odd = {
        key: gemm.pack(RawWeight.dense(torch.ones(x))) if isinstance(x, tuple) else x
        for key, x in changes.items()
    }
    layers = [decoder.layers[0], replace(decoder.layers[1], **odd)]
    caches = make_kv(layout, 2, pages=1)
    run.stack(decoder, caches)
    with pytest.raises(KernelError, match=name):
        run.stack(replace(decoder, layers=layers), caches)


def test_rows_and_columns_that_do_not_fit_are_refused() -> None:
    run = backend("cpu")
    for call, name in (
        (lambda: run.rms_norm(torch.ones(2, 8), torch.ones(7), 1e-5), "norm"),
        (lambda: run.rms_norm(torch.ones(2, 8).half(), torch.ones(8), 1e-5), "x"),
        (lambda: run.silu_mul(torch.ones(2, 7)), "halve"),
        (lambda: run.silu_mul(torch.ones(2, 8).double()), "gate_up"),
        (lambda: run.argmax(torch.ones(2, 0)), "without values"),
    ):
        with pytest.raises(KernelError, match=name):
            call()


def test_a_weight_whose_bytes_are_not_its_shape_is_refused() -> None:
    backend("cpu")
    packed = gemm.pack(RawWeight.dense(torch.ones(16, 32)))
    with pytest.raises(KernelError, match="are needed"):
        replace(packed, rows=17)
    with pytest.raises(KernelError, match="are needed"):
        gemm.pack(RawWeight("f32", 17, 32, torch.ones(16, 32)))


def test_scratch_that_is_too_small_is_refused_by_c(monkeypatch: pytest.MonkeyPatch) -> None:
    backend("cpu")
    packed = gemm.pack(RawWeight.dense(torch.ones(16, 32)))
    monkeypatch.setattr(gemm, "scratch", lambda *_: torch.empty(3))
    with pytest.raises(KernelError, match="smaller than the product needs"):
        gemm.linear(torch.ones(64, 32), packed)


def test_structs_and_codes_are_those_of_c() -> None:
    """A library of other structs is never called."""
    backend("cpu")
    kv.library(16, 64, 3)  # compared as it is loaded
    sizes = [ctypes.sizeof(kv._Cache), ctypes.sizeof(kv._Step)]
    macros = {"PAGE": 16, "DIM": 64, "GROUP": 3}
    for wrong in ([*sizes], [8, *sizes[1:], *Code], []):
        with pytest.raises(BuildError, match="install EveWatch anew"):
            native.library(("append.c", "attend.c"), macros, wrong)


def test_a_shape_that_the_kernels_do_not_take_is_named() -> None:
    for page, head_dim in ((16, 64), (16, 100), (16, 36), (12, 64), (16, 6)):
        layout = make_cache(PLAIN, Shape(page=page, head_dim=head_dim)).layout
        assert (cpu.misfit(layout, 6) is None) == ((page, head_dim) == (16, 64))
    with pytest.raises(KernelError, match="7 query heads do not divide over 2"):
        layout.group(7)
