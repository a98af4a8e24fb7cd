"""Picks the kernels' backend once, at start, and says what it picked and why."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import cast

import torch

from kernels import reference
from kernels.contract import Operations
from kernels.errors import BuildError, KernelError
from kernels.layout import PageLayout

KINDS = ("auto", "reference", "cpu", "triton")


@dataclass(frozen=True)
class Backend:
    """What was picked."""

    ops: Operations
    reason: str
    """What was picked and why, one line for people."""

    @property
    def name(self) -> str:
        """reference | cpu | triton"""
        return self.ops.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever starts it should know: that the kernels are the slow ones, and why."""
        return (self.reason,) if self.name == "reference" else ()

    def suited_to(self, layout: PageLayout, query_heads: int, kind: str = "auto") -> Backend:
        """This backend if it can serve such a cache; else, where `kind` is auto, the reference.

        Raises KernelError if `kind` asked for kernels that cannot.
        """
        problem = self.ops.misfit(layout, query_heads)
        if problem is None:
            return self
        if kind != "auto":
            raise KernelError(f"kernels = {kind}: {problem}; use auto, or another model")
        return Backend(reference, f"reference kernels (slow): {problem}")


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
        return Backend(reference, "reference kernels: asked for")
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
        return Backend(reference, f"reference kernels (slow): {why}")
    return Backend(cast(Operations, module), f"triton kernels: a first one ran on {device}")


def _cpu(kind: str) -> Backend:
    from kernels import cpu

    try:
        cpu.prepare()
    except BuildError as error:
        if kind == "cpu":
            raise KernelError(f"kernels: cpu kernels cannot be built: {error}") from error
        return Backend(reference, f"reference kernels (slow): {error}")
    why = "asked for" if kind == "cpu" else "built with the system compiler"
    return Backend(cpu, f"cpu kernels: {why}")
