"""One look at the host: counters that only grow, so that two looks make a span."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from engine.observing.cgroup import ROOT as CGROUP
from engine.observing.cgroup import CpuQuota, cpu_quota
from engine.observing.host.processes import PAGE, PROC, TICKS, Process, family, table, text_of


@dataclass(frozen=True)
class Places:
    """Where the host is read; others for a recorded one."""

    proc: Path = PROC
    cgroup: Path = CGROUP
    disk: Path | None = None
    """Where the log lives."""


@dataclass(frozen=True)
class CpuTimes:
    """Seconds of the cores that the process may use, since boot."""

    busy: float
    steal: float
    idle: float


@dataclass(frozen=True)
class ThreadTimes:
    wait_s: float | None
    """In the run queue; None: the kernel does not count it."""
    involuntary: int


@dataclass(frozen=True)
class Reading:
    """At one moment. None and empty: not to be had here."""

    monotonic: float
    wall: float
    cores: int | None = None
    """That the process may use, two threads of one core counted once."""
    cpu: CpuTimes | None = None
    own: frozenset[int] = frozenset()
    """The process; with its children where it is another one: a server's workers."""
    processes: dict[int, Process] = field(default_factory=dict)
    threads: dict[int, ThreadTimes] = field(default_factory=dict)
    quota: CpuQuota | None = None
    pressure: dict[str, float] = field(default_factory=dict)
    """Seconds in which some task waited, by cpu, memory, io."""
    swapped_bytes: int | None = None
    available_share: float | None = None
    disk_free_bytes: int | None = None


HERE = Places()


def look(pid: int, places: Places = HERE) -> Reading:
    """Takes a millisecond or two, more on a machine with thousands of processes."""
    proc, own = places.proc, places.proc / str(pid)
    processes = table(proc)
    members = {pid} & processes.keys()
    if members and pid != os.getpid():
        members = family(pid, processes)
        if os.getpid() in members:  # the target started this process: that is not its worker
            members -= family(os.getpid(), processes)
    allowed = _allowed(own)
    return Reading(
        time.monotonic(),
        time.time(),
        _whole_cores(proc, allowed),
        _cpu_times(proc, allowed),
        frozenset(members),
        processes,
        {tid: times for member in members for tid, times in _threads(proc / str(member))},
        cpu_quota(places.cgroup, own / "cgroup"),
        {kind: s for kind in ("cpu", "memory", "io")
         if (s := _pressure(proc / "pressure" / kind)) is not None},
        _swapped(proc),
        _available(proc),
        _free(places.disk),
    )  # fmt: skip


def _allowed(own: Path) -> tuple[int, ...]:
    ranges = _fields(text_of(own / "status")).get("Cpus_allowed_list", "").strip()
    cores: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _whole_cores(proc: Path, allowed: tuple[int, ...]) -> int | None:
    """Two threads of one core are one: engines take as many threads as there are cores."""
    places = set()
    for block in text_of(proc / "cpuinfo").split("\n\n"):
        rows = {name.strip(): value.strip() for name, value in _fields(block).items()}
        number = rows.get("processor", "")
        if number.isdigit() and int(number) in allowed:
            places.add((rows.get("physical id"), rows.get("core id", number)))
    return len(places) or len(allowed) or psutil.cpu_count(logical=False)


def _fields(text: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _cpu_times(proc: Path, allowed: tuple[int, ...]) -> CpuTimes | None:
    wanted = {f"cpu{core}" for core in allowed}
    rows = [line.split() for line in text_of(proc / "stat").splitlines()]
    cores = [list(map(int, row[1:])) for row in rows if row and row[0] in wanted and len(row) > 8]
    if not cores:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = (
        sum(column) / TICKS for column in list(zip(*cores, strict=True))[:8]
    )
    return CpuTimes(user + nice + system + irq + softirq, steal, idle + iowait)


def _threads(own: Path) -> Iterator[tuple[int, ThreadTimes]]:
    try:
        names = os.listdir(own / "task")
    except OSError:
        return
    for name in names:
        counted = text_of(own / "task" / name / "schedstat").split()
        wait = int(counted[1]) / 1e9 if len(counted) > 1 else None
        status = text_of(own / "task" / name / "status")
        switches = status.rpartition("nonvoluntary_ctxt_switches:")[2].strip()
        yield int(name), ThreadTimes(wait, int(switches) if switches.isdigit() else 0)


def _pressure(path: Path) -> float | None:
    for line in text_of(path).splitlines():
        if line.startswith("some"):
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def _swapped(proc: Path) -> int | None:
    rows = dict(row for line in text_of(proc / "vmstat").splitlines()
                if len(row := line.split()) == 2)  # fmt: skip
    if "pswpin" not in rows:
        return None
    return (int(rows["pswpin"]) + int(rows.get("pswpout", 0))) * PAGE


def _available(proc: Path) -> float | None:
    rows = _fields(text_of(proc / "meminfo"))
    try:
        return int(rows["MemAvailable"].split()[0]) / int(rows["MemTotal"].split()[0])
    except (KeyError, IndexError, ZeroDivisionError):
        return None


def _free(disk: Path | None) -> int | None:
    while disk is not None and not disk.exists() and disk != disk.parent:
        disk = disk.parent
    try:
        return None if disk is None else shutil.disk_usage(disk).free
    except OSError:
        return None
