"""Picks the kernels' backend once, at start, and says what it picked and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from kernels import reference
from kernels.decoder import Stack
from kernels.errors import BuildError, KernelError

KINDS = ("auto", "reference", "cpu", "triton")


@dataclass(frozen=True)
class Backend:
    """The functions of `kernels.reference`, made by one backend."""

    name: str
    """reference | cpu"""
    reason: str
    """What was picked and why, one line for people."""
    pack: Callable[..., Any]
    linear: Callable[..., torch.Tensor]
    embed: Callable[..., torch.Tensor]
    rms_norm: Callable[..., torch.Tensor]
    silu_mul: Callable[..., torch.Tensor]
    append_kv: Callable[..., torch.Tensor]
    attend: Callable[..., torch.Tensor]
    stack: Callable[..., Stack]


def select(kind: str = "auto", device: str = "cpu") -> Backend:
    """The backend `kind` for tensors on `device`.

    `auto` takes the fastest that works here and falls back to the reference, visibly: see
    `reason`. Raises KernelError if `kind` is unknown or cannot run.
    """
    if kind not in KINDS:
        raise KernelError(f"kernels: {kind!r} is not one of {', '.join(KINDS)}")
    if kind == "triton":
        raise KernelError("kernels: triton kernels are not in this version; use auto")
    if kind == "reference":
        return _backend(reference, "reference kernels: asked for")
    if torch.device(device).type != "cpu":
        if kind == "cpu":
            raise KernelError(f"kernels: cpu kernels cannot run on {device}; use auto")
        return _backend(reference, f"reference kernels: no faster ones for {device} yet")
    return _cpu(kind)


def _cpu(kind: str) -> Backend:
    from kernels import cpu

    try:
        cpu.prepare()
    except BuildError as error:
        if kind == "cpu":
            raise KernelError(f"kernels: cpu kernels cannot be built: {error}") from error
        return _backend(reference, f"reference kernels (slow): {error}")
    why = "asked for" if kind == "cpu" else "built with the system compiler"
    return _backend(cpu, f"cpu kernels: {why}")


def _backend(module: ModuleType, reason: str) -> Backend:
    names = ("pack", "linear", "embed", "rms_norm", "silu_mul", "append_kv", "attend", "stack")
    return Backend(module.name, reason, *(getattr(module, name) for name in names))
