"""Processes in /proc: CPU time of each, who belongs to whom, who listens on a port."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
LISTEN = "0A"
INTERPRETERS = ("python", "node", "java", "ruby", "perl", "bash", "sh")


@dataclass(frozen=True)
class Process:
    """One row of the table."""

    pid: int
    parent: int
    started: int
    """Ticks after boot: with the pid, it names a process for good."""
    name: str
    cpu_s: float
    major_faults: int


def table(root: Path = PROC) -> dict[int, Process]:
    """All that can be seen; empty where there is no /proc."""
    try:
        names = os.listdir(root)
    except OSError:
        return {}
    rows = (read(int(name), root) for name in names if name.isdigit())
    return {row.pid: row for row in rows if row is not None}


def read(pid: int, root: Path = PROC) -> Process | None:
    """None when it is gone."""
    text = text_of(root / str(pid) / "stat")
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    return Process(
        pid, int(fields[1]), int(fields[19]), name,
        (int(fields[11]) + int(fields[12])) / TICKS, int(fields[9]),
    )  # fmt: skip


def family(pid: int, rows: Mapping[int, Process]) -> set[int]:
    """It and all that it started, directly or not."""
    found = {pid}
    while more := {row.pid for row in rows.values() if row.parent in found} - found:
        found |= more
    return found


def shown_name(pid: int, plain: str, root: Path = PROC) -> str:
    """An interpreter with its script; of other arguments nothing: they may hold secrets."""
    if not plain.startswith(INTERPRETERS):
        return plain
    arguments = text_of(root / str(pid) / "cmdline").rstrip("\0").split("\0")[1:]
    for i, argument in enumerate(arguments):
        if argument == "-m" and i + 1 < len(arguments):
            return f"{plain} -m {arguments[i + 1]}"
        if argument == "-c":
            return f"{plain} -c"
        if not argument.startswith("-"):
            return f"{plain} {os.path.basename(argument)}"
    return plain


@dataclass(frozen=True)
class Held:
    """What a process and its children hold."""

    open_files: int | None
    resident_bytes: int | None


def held_by(pid: int, root: Path = PROC) -> Held:
    """None where it may not be looked at, or is gone."""
    members = family(pid, table(root))
    files = [_count(root / str(one) / "fd") for one in members]
    pages = [text_of(root / str(one) / "statm").split()[1:2] for one in members]
    return Held(
        None if None in files else sum(n or 0 for n in files),
        sum(int(n) for row in pages for n in row) * PAGE if all(pages) else None,
    )


def _count(folder: Path) -> int | None:
    try:
        return len(os.listdir(folder))
    except OSError:
        return None


def listening_pid(port: int, root: Path = PROC) -> int | None:
    """The process of this machine that listens there; None: nobody, or it may not be known.

    The oldest one, where a server's children share its socket.
    """
    inodes = set(_listening_inodes(port, root))
    holders = [pid for pid in table(root) if inodes & set(_sockets(pid, root))] if inodes else []
    rows = [row for pid in holders if (row := read(pid, root)) is not None]
    return min(rows, key=lambda row: row.started).pid if rows else None


def _listening_inodes(port: int, root: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        for line in text_of(root / "net" / name).splitlines()[1:]:
            fields = line.split()
            if len(fields) < 10 or fields[3] != LISTEN:
                continue
            if int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _sockets(pid: int, root: Path) -> Iterator[str]:
    folder = root / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except OSError:  # another user's, or gone
        return
    for name in names:
        try:
            link = os.readlink(folder / name)
        except OSError:
            continue
        if link.startswith("socket:["):
            yield link[8:-1]


def pid_behind(origin: str) -> int | None:
    """The process that answers at http://HOST:PORT, where that is this machine by its loopback
    address; None: it is elsewhere, or may not be known."""
    parts = urlsplit(origin)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    local = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
    return listening_pid(port) if local else None


def text_of(path: Path) -> str:
    """Empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
