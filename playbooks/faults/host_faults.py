"""Faults of the host: what a machine can do to an engine, done to one engine and undone.

Neighbours and a thread too few are real; what only an administrator can do to a machine (a quota,
memory that is short, a clock that is set) is told by the host's readings.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch

from engine.core import Engine
from engine.execution.runner import Batch
from engine.observing.cgroup import CpuQuota
from engine.observing.host import Reading, look, silent
from engine.observing.machine import cores
from playbooks.measure.replaced import replaced

LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100000))"
"""Ends with whoever started it, however that ends."""
GRACE_S = 10.0


def here() -> Reading:
    """This machine as it is."""
    return look(os.getpid())


@contextmanager
def busy_neighbours(engine: Engine) -> Iterator[None]:
    """A process on every core that computes without end."""
    with ExitStack() as stack:
        for _ in range(max(cores(), 2)):
            loop = subprocess.Popen([sys.executable, "-c", LOOP])
            stack.callback(loop.wait, GRACE_S)
            stack.callback(loop.kill)
        yield


@contextmanager
def threads_restored(engine: Engine) -> Iterator[None]:
    """torch's number of threads is the process's: the next engine has its own again."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def two_idle_cores() -> Reading:
    return replace(silent(), cores=2)


class ShortMemory:
    """Half of the time some task waits for memory."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def look(self) -> Reading:
        waited = (time.monotonic() - self._start) / 2
        return replace(silent(), pressure={"memory": waited}, available_share=0.01)


class SteppingClock:
    """The wall clock is set ahead by two seconds between two looks."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def look(self) -> Reading:
        self._ahead_s += 2.0
        now = silent()
        return replace(now, wall=now.wall + self._ahead_s)


class SpentQuota:
    """A container's quota of half a core, without the container: after each step the engine
    stands still for as long as it computed, and that is counted as the kernel counts it."""

    def __init__(self) -> None:
        self._periods = 0

    def look(self) -> Reading:
        return replace(silent(), quota=CpuQuota(0.5, self._periods, self._periods))

    @contextmanager
    def touch(self, engine: Engine) -> Iterator[None]:
        runner, plain = engine.runner, engine.runner.run

        def run(batch: Batch) -> torch.Tensor:
            start = time.monotonic()
            logits = plain(batch)
            time.sleep(time.monotonic() - start)
            self._periods += 1
            return logits

        with replaced(runner, "run", run):
            yield
