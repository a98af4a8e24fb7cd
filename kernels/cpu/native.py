"""Between Python and the C kernels: addresses that C may use, and what C says in return.

C trusts the sizes that it is told. So every tensor is checked here against the shape that goes
with it, and ids inside arrays (pages, slabs, rows) are checked in C, which answers a Failure.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from pathlib import Path

import torch

from kernels.cpu.build import load
from kernels.errors import BuildError, KernelError

POINTER, SIZE = ctypes.c_void_p, ctypes.c_int64
FLOAT = ctypes.c_float
INT = ctypes.c_int


class Team(ctypes.Structure):
    """`Team` of team.h."""

    _fields_ = [("run", POINTER), ("threads", SIZE)]


class Failure(IntEnum):
    """`enum Failure` of native.h."""

    NO_MEMORY = 1
    ROWS_RISE = 2
    PAGE_ID = 3
    SLAB_ID = 4
    SCRATCH_ID = 5
    POSITION = 6
    ROW_ID = 7
    ROOM = 8


_TEXTS = {
    Failure.ROWS_RISE: "row_start does not rise from 0 to the batch's rows",
    Failure.PAGE_ID: "a sequence's page is not one of the cache, or its block table is too short",
    Failure.SLAB_ID: "a sequence's slab is not one of the cache",
    Failure.SCRATCH_ID: "a step needs more scratch blocks than the cache has",
    Failure.POSITION: "a row's position is not the one that its context gives, or past the table",
    Failure.ROW_ID: "a row that is asked for is not one of the matrix",
    Failure.ROOM: "the scratch memory is smaller than the product needs",
}


def source(name: str) -> Path:
    """A C file of this folder."""
    return Path(__file__).with_name(name)


def library(names: tuple[str, ...], macros: dict[str, int], mirrored: list[int]) -> ctypes.CDLL:
    """Built on first use. Raises BuildError, also where its structs are not those of Python.

    `mirrored`: sizes and codes, as the MIRRORED of the sources lists them; after them C says
    which failures it knows.
    """
    loaded = load([source(name) for name in names], macros)
    count = ctypes.c_int64.in_dll(loaded, "mirrored_count").value
    theirs = list((ctypes.c_int64 * count).in_dll(loaded, "mirrored"))
    ours = [*mirrored, *Failure]
    if theirs != ours:
        raise BuildError(
            f"{names[0]}: its structs are {theirs}, Python's {ours}; install EveWatch anew"
        )
    return loaded


def team() -> int:
    """Address of what shares out the items of a call among as many threads as torch has. Raises
    BuildError."""
    return ctypes.addressof(_team(torch.get_num_threads()))


@cache
def _team(threads: int) -> Team:
    loaded = library(("team.c",), {}, [ctypes.sizeof(Team)])
    return Team(ctypes.cast(loaded.team_run, POINTER).value, threads)


def demand(what: str, failed: int) -> None:
    """Raises what an entry point returned, if it failed."""
    if failed == Failure.NO_MEMORY:
        raise MemoryError(f"{what}: no memory for the tiles of a step")
    if failed:
        raise KernelError(f"{what}: {_TEXTS[Failure(failed)]}")


def floats(name: str, x: torch.Tensor, shape: tuple[int, ...]) -> int:
    """Address of a tensor that C may use as contiguous float32 of `shape`."""
    if x.shape != shape or x.dtype != torch.float32 or not x.is_contiguous() or not x.is_cpu:
        raise KernelError(
            f"{name}: expected contiguous float32 on the CPU, {list(shape)}, "
            f"got {x.dtype} {list(x.shape)} with strides {x.stride()} on {x.device}"
        )
    return x.data_ptr()


def optional_floats(name: str, x: torch.Tensor | None, shape: tuple[int, ...]) -> int | None:
    """`floats`, None for None."""
    return None if x is None else floats(name, x, shape)
