"""What the kernels cost on a GPU, told by the compiler: `python -m kernels.triton.report`.

Compiles every launch of a decode and a prefill step for a target that need not be in the
machine, through Triton and the assembler that comes with it, and prints registers, spilled
bytes and shared memory of each. A kernel that compiles here is valid for that GPU; that its
results are right is what the tests check, through Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.errors import KernelError
from kernels.layout import FORMATS, HP, KvStep, LayerKv, PageLayout
from kernels.triton import append, attention, rowwise
from kernels.triton.attention import CAPABILITY
from kernels.triton.launch import Launch, is_interpreted
from kernels.weights import Rope

POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
WARP = 32
COLUMNS = {
    "case": 36,
    "step": 9,
    "kernel": 18,
    "warps": 7,
    "registers": 11,
    "spilled": 9,
    "shared": 8,
    "tensor_cores": 12,
}
USAGE = re.compile(r"REG:(\d+).*?STACK:(\d+).*?LOCAL:(\d+)")


@dataclass(frozen=True)
class AttentionCase:
    """One attention layer in one format."""

    fmt: str = "int8_channel"
    outliers: int = 4
    zero_point: bool = False
    page: int = 16
    head_dim: int = 128
    group: int = 4

    def __str__(self) -> str:
        options = f"+n{self.layout.outliers}" * bool(self.layout.outliers)
        options += "+zero" * self.zero_point
        return f"{self.fmt}{options} P{self.page} D{self.head_dim} G{self.group}"

    @property
    def layout(self) -> PageLayout:
        fmt = FORMATS[self.fmt]
        return PageLayout(
            fmt,
            2,
            self.head_dim,
            self.page,
            self.outliers if fmt.has_outliers else 0,
            self.zero_point,
        )


@dataclass(frozen=True)
class Compiled:
    kernel: str
    registers: int
    """Per thread."""
    spilled: int
    """Bytes per thread."""
    shared: int
    """Bytes per program."""
    warps: int
    tensor_cores: bool
    """Its products are matrix instructions."""


CASES = [
    *(AttentionCase(fmt) for fmt in FORMATS),
    AttentionCase(zero_point=True),
    AttentionCase("int8_token", zero_point=True),
    AttentionCase(page=32, group=8),
    AttentionCase(head_dim=64, group=3),
    AttentionCase(head_dim=64, page=32, group=1),
]


def compile_launch(launch: Launch, capability: int = CAPABILITY) -> Compiled:
    """For CUDA compute capability `capability` (90 is Hopper), without running anything.

    Raises KernelError under Triton's interpreter, which has nothing to compile.
    """
    if is_interpreted():
        raise KernelError("report: TRITON_INTERPRET is set; unset it to compile")
    signature, constants = {}, dict(launch.constants)
    for name in launch.kernel.arg_names:
        value = launch.args.get(name)
        signature[name] = _type_of(value) if name not in constants else "constexpr"
        if value is None:
            constants.setdefault(name, None)
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, kind in enumerate(signature.values())
        if kind.startswith("*")
    }
    compiled = triton.compile(
        ASTSource(launch.kernel, signature, constants, aligned),
        target=GPUTarget("cuda", capability, WARP),
        options={"num_warps": launch.warps, "num_stages": launch.stages},
    )
    registers, spilled = _usage(compiled.asm["cubin"])
    return Compiled(
        launch.kernel.fn.__name__,
        registers,
        spilled,
        compiled.metadata.shared,
        launch.warps,
        "mma" in compiled.asm["ptx"],
    )


def _type_of(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    kinds = {int: "i32", float: "fp32", type(None): "constexpr"}
    return kinds[type(value)]


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers and local bytes of a thread, as the assembler left them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(file)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = USAGE.search(text)
    if match is None:
        raise KernelError(f"report: cuobjdump says nothing about registers: {text[:200]!r}")
    return int(match[1]), int(match[2]) + int(match[3])


def launches(case: AttentionCase, capability: int = CAPABILITY) -> Iterator[tuple[str, Launch]]:
    """All that a layer launches, and in what kind of step: a split decode, or a prefill."""
    for kind, rows in (("decode", [1, 1]), ("prefill", [3 * case.page])):
        step = KvStep.build(
            case.page, rows, [5, 900][: len(rows)], [[0] * 64] * len(rows), [0, 1][: len(rows)]
        )
        kv, heads = empty_cache(case.layout), 2 * case.group
        qkv = torch.zeros(sum(rows), (heads + 4) * case.head_dim)
        q = torch.zeros(sum(rows), heads, case.head_dim)
        turns = torch.zeros(1024, case.head_dim // 2)
        norm = torch.zeros(case.head_dim)
        writes = append.launches(qkv, q, kv, step, Rope(turns, turns), norm, norm, 1e-6)
        out = torch.zeros(sum(rows), 1)
        reads = attention.launches(q, out, kv, step, 1.0, splits=4, capability=capability)
        yield from ((kind, launch) for launch in (*writes, *reads))
    x = torch.zeros(2, 576)
    yield "any", rowwise.norm_launch(x, x[0], x, 1e-6)
    yield "any", rowwise.silu_launch(torch.zeros(2, 3072), torch.zeros(2, 1536))


def rows(cases: list[AttentionCase], capability: int) -> Iterator[dict[str, Any]]:
    """One row for each kernel that is not the same as an earlier one."""
    seen = set()
    for case in cases:
        for kind, launch in launches(case, capability):
            key = launch.kernel.fn.__name__, str(launch.constants), launch.warps
            if key not in seen:
                seen.add(key)
                compiled = asdict(compile_launch(launch, capability))
                yield {"case": str(case), "step": kind, **compiled}


def empty_cache(layout: PageLayout) -> LayerKv:
    """One page and two blocks: enough to know types and sizes from."""
    h, scales = layout.kv_heads, torch.zeros(layout.kv_heads, layout.head_dim)
    block = (h, 2, layout.block_elements)
    return LayerKv(
        layout,
        torch.zeros((1, h, layout.head_bytes), dtype=torch.uint8),
        torch.zeros((2, *block), dtype=HP),
        torch.zeros((5, *block), dtype=HP),
        torch.zeros((h, layout.outliers), dtype=torch.int32),
        scales,
        scales,
        torch.zeros(2, dtype=torch.int64),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("formats", nargs="*", help="KV formats (all)")
    parser.add_argument("--capability", type=int, default=CAPABILITY, help="80, 89, 90, 100 …")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    given = parser.parse_args(arguments)
    cases = [case for case in CASES if not given.formats or case.fmt in given.formats]
    if not given.json:
        print("".join(f"{name:<{width}}" for name, width in COLUMNS.items()))
    for row in rows(cases, given.capability):
        line = "".join(f"{row[name]!s:<{width}}" for name, width in COLUMNS.items())
        print(json.dumps(row) if given.json else line, flush=True)


if __name__ == "__main__":
    main()
