"""Jobs on other processes. They end with who asked for them, and at once where nobody waits."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import redirect_stderr, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from playbooks.steps import Progress

LOOK_S = 0.2
"""So often `progress` is told while a job is awaited."""
GIVING_WAY = 10
"""Niceness of processes beside an engine that serves."""
Job = Callable[[Any], Any]
"""Called with what all jobs share."""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def results(
    shared: Any, jobs: Sequence[Job], progress: Progress, processes: int, nice: int = 0
) -> list[Any]:
    """What the jobs return, in their order. `processes`: 0 is this one alone. What `progress`
    raises ends them all."""
    progress(0, len(jobs))
    found = []
    if processes == 0:
        for job in jobs:
            found.append(job(shared))
            progress(len(found), len(jobs))
        return found
    context = get_context("spawn")  # a fork of a process with threads can hang
    with redirect_stderr(sys.__stderr__):  # a screen's has no file that a process could be given
        resource_tracker.ensure_running()
    theirs, ours = context.Pipe(duplex=False)
    begin = (shared, theirs, nice)
    with theirs, ours, ProcessPoolExecutor(processes, context, _begin, begin) as pool:
        try:
            futures = [pool.submit(_do, job) for job in jobs]
            for future in futures:
                while not wait([future], LOOK_S).done:
                    progress(len(found), len(jobs))
                found.append(future.result())
                progress(len(found), len(jobs))
        except BaseException:
            ours.close()
            raise
    return found


# --- in a process of the pool ----------------------------------------------------------------

_shared: Any = None


def _begin(shared: Any, lifeline: Connection, nice: int) -> None:
    global _shared
    _shared = shared
    os.nice(nice)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """Nothing is ever sent: it is closed by who asked, or because that process is gone."""
    with suppress(EOFError, OSError):
        lifeline.recv()
    os._exit(1)


def _do(job: Job) -> Any:
    return job(_shared)
