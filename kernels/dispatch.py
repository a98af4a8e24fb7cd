"""Picks the kernels' backend once, at start, and says what it picked and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
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
    """reference | cpu | triton"""
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
    argmax: Callable[..., tuple[torch.Tensor, torch.Tensor]]


def select(kind: str = "auto", device: str = "cpu", require_triton: bool = False) -> Backend:
    """The backend `kind` for tensors on `device`.

    `auto` takes the fastest that works here and falls back to the reference, visibly: see
    `reason`. Raises KernelError if `kind` is unknown or cannot run, and with
    `require_triton` instead of choosing anything but Triton.
    """
    if kind not in KINDS:
        raise KernelError(f"kernels: {kind!r} is not one of {', '.join(KINDS)}")
    if require_triton and kind not in ("auto", "triton"):
        raise KernelError(f"require_triton: kernels = {kind} was asked for too; use auto")
    is_cpu = torch.device(device).type == "cpu"
    if kind == "triton" or require_triton or (kind == "auto" and not is_cpu):
        return _triton(device, is_required=kind == "triton" or require_triton)
    if kind == "reference":
        return _backend(reference, "reference kernels: asked for")
    if not is_cpu:
        raise KernelError(f"kernels: cpu kernels cannot run on {device}; use auto")
    return _cpu(kind)


def _triton(device: str, is_required: bool) -> Backend:
    try:
        module = import_module("kernels.triton")
        module.prepare(device)
    except Exception as error:  # anything can come out of a broken installation: it is told
        text = str(error).strip().split("\n")[0]
        why = f"triton does not work on {device}: {type(error).__name__}: {text}"
        if is_required:
            raise KernelError(f"kernels: {why}; mend it, or use auto") from error
        return _backend(reference, f"reference kernels (slow): {why}")
    return _backend(module, f"triton kernels: a first one ran on {device}")


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
    operations = [field.name for field in fields(Backend)[2:]]
    return Backend(module.name, reason, *(getattr(module, name) for name in operations))
