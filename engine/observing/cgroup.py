"""What the container gives: cores and memory of this process's control groups, v1 and v2.

A group is held to its own limits and to those of every group around it, so the least counts.
The cpuset needs no reading: the scheduler's affinity has it already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
UNLIMITED = 1 << 60
"""v1 writes no limit as the largest number of whole pages."""


@dataclass(frozen=True)
class CpuQuota:
    """CFS bandwidth: so much CPU time a period, and then the group stands still."""

    cores: float
    """Quota over period."""
    periods: int | None = None
    throttled: int | None = None
    """Of the periods so far, those in which it stood still."""
    stood_s: float | None = None
    """So long until now, every core's time counted."""


def cpu_quota(root: Path = ROOT, own: Path = OWN) -> CpuQuota | None:
    """The tightest one; None where nothing holds this process back."""
    found = [quota for folder in _folders("cpu", root, own) if (quota := _quota(folder))]
    return min(found, key=lambda quota: quota.cores, default=None)


def memory_limit(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Bytes; None where there is no limit."""
    return min((limit for _, limit in _limits(root, own)), default=None)


def memory_room(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Bytes that may still be taken, with what the kernel gives back at once (file pages that are
    not in use); None where there is no limit."""
    return min(
        (max(0, limit - _held(folder)) for folder, limit in _limits(root, own)), default=None
    )


def _limits(root: Path, own: Path) -> Iterator[tuple[Path, int]]:
    """Each group that has one, and it: from memory.high on the group stands still."""
    for folder in _folders("memory", root, own):
        names = ("memory.max", "memory.high", "memory.limit_in_bytes")
        sizes = [_size(_text(folder / name)) for name in names]
        sizes.append(_counts(folder / "memory.stat").get("hierarchical_memory_limit"))
        limit = min((size for size in sizes if size), default=UNLIMITED)
        if limit < UNLIMITED:
            yield folder, limit


def _held(folder: Path) -> int:
    stat = _counts(folder / "memory.stat")
    current = _text(folder / "memory.current") or _text(folder / "memory.usage_in_bytes")
    return (_size(current) or 0) - stat.get("total_inactive_file", stat.get("inactive_file", 0))


def throttled_share(before: CpuQuota | None, after: CpuQuota | None) -> float | None:
    """Of the periods between two readings, those in which the group stood still; 0 without a
    quota, None where the kernel does not count them or none has passed."""
    if after is None:
        return 0.0
    if before is None or after.periods is None or after.throttled is None:
        return None
    periods = after.periods - (before.periods or 0)
    return (after.throttled - (before.throttled or 0)) / periods if periods > 0 else None


def _folders(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """This process's group and those around it, in whatever hierarchy has the controller."""
    for line in (_text(own) or "0::/").splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and controller not in names.split(","):
            continue
        bases = (root / names, *_mounted(controller, root)) if names else (root, root / "unified")
        base = next((base for base in bases if base.is_dir()), None)
        if base is None:
            continue
        here = base / path.lstrip("/")
        if not here.is_dir():  # the container's own group is mounted as the root
            here = base
        while True:
            yield here
            if here == base:
                break
            here = here.parent


def _mounted(controller: str, root: Path) -> list[Path]:
    """Where v1 has it: `cpu`, `cpu,cpuacct` or `cpuacct,cpu`."""
    try:
        return sorted(path for path in root.iterdir() if controller in path.name.split(","))
    except OSError:
        return []


def _quota(folder: Path) -> CpuQuota | None:
    quota, period, *_ = (*_text(folder / "cpu.max").split(), "", "")
    if not quota:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    time, of = _size(quota), _size(period)
    if not time or not of:
        return None  # "max", or -1
    counts = _counts(folder / "cpu.stat")
    us, ns = counts.get("throttled_usec"), counts.get("throttled_time")  # v2 and v1
    stood_s = us / 1e6 if us is not None else ns / 1e9 if ns is not None else None
    return CpuQuota(time / of, counts.get("nr_periods"), counts.get("nr_throttled"), stood_s)


def _counts(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: n for row in rows if len(row) == 2 and (n := _size(row[1])) is not None}


def _size(text: str) -> int | None:
    """A whole number that the kernel can mean."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _text(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""
