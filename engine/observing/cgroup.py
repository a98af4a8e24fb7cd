"""What the container gives: cores and memory of this process's control groups, v1 and v2.

A group is held to its own limits and to those of every group around it, so the least counts.
The cpuset needs no reading: the scheduler's affinity has it already.
"""

from __future__ import annotations

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


def cpu_quota(root: Path = ROOT, own: Path = OWN) -> CpuQuota | None:
    """The tightest one; None where nothing holds this process back."""
    found = [quota for folder in _folders("cpu", root, own) if (quota := _quota(folder))]
    return min(found, key=lambda quota: quota.cores, default=None)


def memory_limit(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Bytes; None where there is no limit."""
    texts = (
        _text(folder / name)
        for folder in _folders("memory", root, own)
        for name in ("memory.max", "memory.limit_in_bytes")
    )
    sizes = [int(text) for text in texts if text.isdigit()]
    return min((size for size in sizes if size < UNLIMITED), default=None)


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
    for line in _text(own).splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and controller not in names.split(","):
            continue
        bases = (root / names, root / controller) if names else (root, root / "unified")
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


def _quota(folder: Path) -> CpuQuota | None:
    quota, period, *_ = (*_text(folder / "cpu.max").split(), "", "")
    if not quota:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return None  # "max", or -1
    rows = (line.split() for line in _text(folder / "cpu.stat").splitlines())
    counts = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    cores = int(quota) / int(period)
    return CpuQuota(cores, counts.get("nr_periods"), counts.get("nr_throttled"))


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
