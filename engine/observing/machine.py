"""What the machine itself says: memory, cores, allocators, GPUs. No torch of its own.

Asking takes a millisecond or so (NVML can take many), so it is never done by who wants to know:
`read` hands out the last answers and, when they have aged, has a thread fetch new ones.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache

import psutil

from engine.observing.cgroup import cpu_quota, memory_room
from engine.observing.gpu import gpus
from engine.snapshot import AllocatorState, GpuState

REFRESH_S = 1.0


@dataclass(frozen=True)
class MachineState:
    """At one moment. None and empty: not to be had here."""

    rss_bytes: int | None = None
    available_bytes: int | None = None
    cpu_percent: float | None = None
    device_used_bytes: int | None = None
    device_total_bytes: int | None = None
    allocators: tuple[AllocatorState, ...] = ()
    gpus: tuple[GpuState, ...] = ()


class Machine:
    """Any thread may `read`; `fetch` looks now and takes its time."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # counts from here on
        self._door = threading.Lock()
        self._state: MachineState | None = None
        self._due = 0.0

    def read(self) -> MachineState:
        """At most REFRESH_S and the time of a fetch old; the first answer is made at once."""
        state = self._state
        if state is None:
            return self.fetch()
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + REFRESH_S
            threading.Thread(target=self.fetch, name="evewatch-machine", daemon=True).start()
        return state

    def fetch(self) -> MachineState:
        with self._door:
            self._due = time.monotonic() + REFRESH_S
            cards = gpus()
            first = cards[0] if cards else GpuState(0)
            self._state = MachineState(
                rss_bytes=int(self._process.memory_info().rss),
                available_bytes=available_memory(),
                cpu_percent=float(self._process.cpu_percent()),
                device_used_bytes=first.memory_used_bytes,
                device_total_bytes=first.memory_total_bytes,
                allocators=tuple(a for a in (torch_cuda(), system_heap()) if a is not None),
                gpus=cards,
            )
            return self._state


@cache
def machine() -> Machine:
    """One for the process: CPU time is counted between its looks."""
    return Machine()


def cores() -> int:
    """Cores that this process may use: its cpuset, and no more than the container's quota."""
    shown = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = cpu_quota()
    return min(shown or 1, math.ceil(quota.cores) if quota is not None else shown or 1)


def available_memory() -> int:
    """Bytes that this process may still take: of the machine's, no more than the container's."""
    free, room = int(psutil.virtual_memory().available), memory_room()
    return free if room is None else min(free, room)


def torch_cuda() -> AllocatorState | None:
    """torch's caching allocator on the current device; None before it has one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats()
    names = ("reserved_bytes", "allocated_bytes", "active_bytes")
    return AllocatorState("torch CUDA", *(int(stats[f"{name}.all.current"]) for name in names))


class _MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc ≥ 2.33."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


@cache
def _mallinfo() -> ctypes._NamedFuncPointer | None:
    try:
        found = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):  # not glibc, or an old one
        return None
    found.restype = _MallInfo
    return found


def system_heap() -> AllocatorState | None:
    """The C library's heap: what it has from the system, and what of that is handed out."""
    ask = _mallinfo()
    if ask is None:
        return None
    info = ask()
    return AllocatorState(
        "C heap", int(info.arena + info.hblkhd), int(info.uordblks + info.hblkhd), None
    )
