"""Measurements with a witness of the host beside them, and what a report says of it.

What lost more than DISTURBED of its machine is measured once more, and the better one counts;
where that one lost too much as well, the report says so: its figures are marked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from engine.errors import ConfigError
from engine.observing.host import DISTURBED, HostEvidence, Look, Places, Witness, pid_behind
from engine.observing.host.processes import read
from engine.paths import user_folder

if TYPE_CHECKING:
    from engine.core import Engine  # a load on a URL needs no torch

SHARES = ("others_share", "steal_share", "quota_share", "memory_pressure")
Result = TypeVar("Result")


def witness_of(engine: Engine, look: Look | None = None) -> Witness:
    """Of this process, and of the threads with which the engine computes if it does on the CPU.
    `look`: another host than this one."""
    from torch import get_num_threads

    threads = engine.call(get_num_threads) if engine.device == "cpu" else None
    return Witness(compute_threads=threads, places=Places(disk=user_folder()), look=look)


def witness_at(origin: str, pid: int | None = None) -> Witness | None:
    """Of the process that answers at http://HOST:PORT; None where it is not on this machine, and
    where it is this process: a proxy of its own, and not the engine.

    Raises ConfigError for a pid that is nobody's.
    """
    found = process_at(origin, pid)
    return None if found is None else Witness(found, places=Places(disk=user_folder()))


def process_at(origin: str, pid: int | None = None) -> int | None:
    """`pid`, or that of the process that answers at http://HOST:PORT; None and raises as
    `witness_at`."""
    if pid is not None and read(pid) is None:
        raise ConfigError(f"--pid {pid}: no process of this machine has it")
    found = pid if pid is not None else pid_behind(origin)
    return None if found == os.getpid() else found


def less_disturbed(
    measure: Callable[[], Result], hosts: Callable[[Result], Sequence[HostEvidence]]
) -> Result:
    """What was measured; where the machine took too much from it, the better one of two."""
    first = measure()
    if most_lost(hosts(first)) <= DISTURBED:
        return first
    return min(first, measure(), key=lambda result: most_lost(hosts(result)))


def most_lost(spans: Sequence[HostEvidence]) -> float:
    """Of the worst span; what is not told counts as nothing."""
    return max((span.lost or 0.0 for span in spans), default=0.0)


def host_report(spans: Sequence[HostEvidence]) -> dict[str, Any]:
    """Of all spans that a result stands on: shares are means weighted by time."""
    marked = [span for span in spans if span.disturbed]
    worst = max(spans, key=lambda span: span.lost or 0.0)
    return {
        "cores": worst.cores,
        "compute_threads": worst.compute_threads,
        "spans": len(spans),
        "disturbed": len(marked),
        "lost": _mean(spans, "lost"),
        "most_lost": worst.lost,
        **{name: _mean(spans, name) for name in SHARES},
        "clock_jump_s": sum(span.clock_jump_s or 0.0 for span in spans),
        "busiest": [asdict(busy) for busy in worst.busiest],
        "doubt": _doubt(spans, marked, worst),
    }


def _mean(spans: Sequence[HostEvidence], name: str) -> float | None:
    told = [(value, span.seconds) for span in spans
            if (value := getattr(span, name)) is not None]  # fmt: skip
    total = sum(seconds for _, seconds in told)
    return sum(value * seconds for value, seconds in told) / total if total else None


def _doubt(
    spans: Sequence[HostEvidence], marked: Sequence[HostEvidence], worst: HostEvidence
) -> str | None:
    """Why the figures are marked, or None."""
    if not marked:
        return None
    where = "" if len(spans) == 1 else f" (in {len(marked)} of {len(spans)} runs, this at worst)"
    return f"marked: lost, of the CPU time asked for{where}: {worst.why()}"
