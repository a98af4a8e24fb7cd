"""Times the kernels of a model by kind: what a step's forward pass is made of.

Only profiling uses it: a model is loaded with these operations instead of the backend's own.
Where the backend runs all layers in one call it keeps the times itself, and they are read
from there; else each operation is timed around its call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import record_function

from kernels.contract import Accounted, Decoder, Operations, Stack
from kernels.decoder import layer_by_layer
from kernels.layout import KvStep, LayerKv

KINDS = {
    "linear": "gemm",
    "attend": "attention",
    "append_kv": "append_kv",
    "rms_norm": "rowwise",
    "silu_mul": "rowwise",
    "embed": "rowwise",
}
"""Operation -> kind. The names are those that the CPU backend's own counters have."""
ORDER = ("gemm", "attention", "append_kv", "rowwise")


class TimedOps:
    """The operations of a backend, with the nanoseconds of each kind."""

    def __init__(self, backend: Operations) -> None:
        self._backend = backend
        self.name = backend.name
        self._spent: Counter[str] = Counter()
        self._stacks: list[Accounted] = []
        self.traced = False
        """Name the operations in a torch profiler's trace."""
        self.misfit = backend.misfit
        self.pack = backend.pack
        self.argmax = backend.argmax
        self.linear = self._timed("linear")
        self.embed = self._timed("embed")
        self.rms_norm = self._timed("rms_norm")
        self.silu_mul = self._timed("silu_mul")
        self.append_kv = self._timed("append_kv")
        self.attend = self._timed("attend")

    def _timed(self, name: str) -> Callable[..., torch.Tensor]:
        operation, kind = getattr(self._backend, name), KINDS[name]

        def run(*args: Any, **kwargs: Any) -> torch.Tensor:
            start = time.perf_counter_ns()
            if self.traced:
                with record_function(name):
                    out: torch.Tensor = operation(*args, **kwargs)
            else:
                out = operation(*args, **kwargs)
            if out.is_cuda:
                torch.cuda.synchronize()  # a launch is not the work
            self._spent[kind] += time.perf_counter_ns() - start
            return out

        return run

    def stack(self, decoder: Decoder, kv: Sequence[LayerKv]) -> Stack:
        """The backend's own where it counts its time, else layer by layer on these operations."""
        own = self._backend.stack(decoder, kv)
        if not isinstance(own, Accounted):
            return layer_by_layer(self, decoder, kv)
        self._stacks.append(own)

        def run(x: torch.Tensor, step: KvStep, logit_rows: torch.Tensor) -> torch.Tensor:
            if not self.traced:
                return own(x, step, logit_rows)
            with record_function("all layers"):
                return own(x, step, logit_rows)

        return run

    def spent_ms(self) -> dict[str, float]:
        """Since it was made, by kind."""
        total = Counter(self._spent)
        for stack in self._stacks:
            spent = stack.spent_ns()
            spent["gemm"] += spent.pop("head", 0)  # the head is a product like the others
            total.update(spent)
        return {kind: total[kind] / 1e6 for kind in ORDER}
