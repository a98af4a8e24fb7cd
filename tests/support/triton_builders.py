"""Kernels under test on whatever can run them: Triton's interpreter, or a GPU.

`TRITON_INTERPRET=0` on a CUDA machine runs the same tests on compiled kernels.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from kernels import reference
from kernels.layout import KvStep, LayerKv
from kernels.weights import Rope
from kv_builders import Shape, Variant, make_cache, random_qkv, rope, tables

pytest.importorskip("triton", reason="Triton is not made for this platform")

from kernels.triton.launch import is_interpreted

DEVICE = "cpu" if is_interpreted() else "cuda"

if is_interpreted():
    from triton.runtime import interpreter

    seen: set[str] = set()

    def call(function: Any, *given: Any, **named: Any) -> Any:
        """What a kernel calls. Triton patches the language again at every such call, a fifth of
        the time; the launch has done so, and a module of its own library needs it once."""
        if function.fn.__module__ not in seen:
            seen.add(function.fn.__module__)
            interpreter._patch_lang(function.fn)
        return function.rewrite()(*given, **named)

    interpreter.InterpretedFunction.__call__ = call


def filled(
    variant: Variant, shape: Shape, rows: list[int], context: list[int]
) -> tuple[LayerKv, KvStep]:
    """A cache that holds every sequence's context, and the step that adds `rows`; on the CPU.

    Slabs are handed out last sequence first: no kernel may take one for the other.
    """
    tokens = max(c + n for c, n in zip(context, rows, strict=True))
    kv = make_cache(variant, shape, len(rows), tokens)
    table = tables(len(rows), tokens, shape)
    slabs = [len(rows) - 1 - b if variant.open_page else -1 for b in range(len(rows))]
    for b, before in enumerate(context):
        if before:
            step = KvStep.build(shape.page, [before], [0], [table[b]], [slabs[b]])
            reference.append_kv(random_qkv(before, shape, b), kv, step, rope(shape))
    if kv.saturated is not None:
        kv.saturated.zero_()
    return kv, KvStep.build(shape.page, rows, context, table, slabs)


def moved(kv: LayerKv) -> LayerKv:
    """A copy of the cache where the kernels run."""
    tensors = {
        f.name: value.clone().to(DEVICE)
        for f in fields(kv)
        if isinstance(value := getattr(kv, f.name), torch.Tensor)
    }
    return replace(deepcopy(kv), **tensors)


def step_there(step: KvStep) -> KvStep:
    """The step where the kernels run."""
    tensors = {
        f.name: value.to(DEVICE)
        for f in fields(step)
        if isinstance(value := getattr(step, f.name), torch.Tensor)
    }
    return replace(step, **tensors)


def rope_there(turn: Rope) -> Rope:
    return Rope(turn.cos.to(DEVICE), turn.sin.to(DEVICE))


def same_bytes(ours: LayerKv, theirs: LayerKv) -> bool:
    """Pages, slabs and counters are equal to the bit."""
    return (
        torch.equal(ours.pages.cpu(), theirs.pages)
        and torch.equal(ours.slabs.cpu().view(torch.int16), theirs.slabs.view(torch.int16))
        and torch.equal(ours.saturated.cpu(), theirs.saturated)
    )
