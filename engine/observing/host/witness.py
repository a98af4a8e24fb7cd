"""A witness stands beside a process for a while and says what the machine did to it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType

from engine.observing.cgroup import throttled_share
from engine.observing.host.evidence import Busy, HostEvidence
from engine.observing.host.processes import shown_name
from engine.observing.host.reading import HERE, Places, Reading, look

INTERVAL_S = 1.0
COST = 0.01
"""Of the time, at most, that looking may take."""
BUSIEST = 3
BUSY_CORES = 0.02
"""Who took less is nobody."""
JUMP_S = 0.1
"""Between two looks; less is the clock being adjusted, or a look that was interrupted."""
Look = Callable[[], Reading]


def silent() -> Reading:
    """Of a host that tells nothing: what is tried there is judged as on a quiet machine."""
    return Reading(now := time.monotonic(), now)


class Witness:
    """A context around what is measured; `evidence` after it, or on the way.

    `pid`: this process, or another one of this machine. `look` for a host made up.
    """

    def __init__(
        self,
        pid: int | None = None,
        compute_threads: int | None = None,
        places: Places = HERE,
        look: Look | None = None,
    ) -> None:
        self.pid = os.getpid() if pid is None else pid
        self.compute_threads = compute_threads
        self._places = places
        self._look = look or self._real_look
        self._span: _Span | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Witness:
        self._span = _Span(self._look())
        self._ended.clear()
        self._thread = threading.Thread(target=self._watch, name="evewatch-witness", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        assert self._span is not None
        self._span.take(self._look())

    @property
    def evidence(self) -> HostEvidence:
        """Of the time from entering to the last look."""
        if self._span is None:
            raise RuntimeError("the witness has not been there yet")
        return self._span.evidence(self._places, self.compute_threads)

    def _real_look(self) -> Reading:
        return look(self.pid, self._places)

    def _watch(self) -> None:
        assert self._span is not None
        pause = INTERVAL_S
        while not self._ended.wait(pause):
            start = time.thread_time()
            self._span.take(self._look())
            pause = max(INTERVAL_S, (time.thread_time() - start) / COST)


class _Span:
    """The sums from the first look to the last one."""

    def __init__(self, first: Reading) -> None:
        self.first = self.last = first
        self._jumps = self._wait = 0.0
        self._involuntary = 0
        self._cpu = self._generator = 0.0
        self._faults = 0
        self._told_wait = True
        self._took: dict[tuple[int, int], float] = defaultdict(float)
        """CPU seconds of other processes, by pid and start; not of this one, which sends the load
        to another."""
        self._names: dict[tuple[int, int], str] = {}

    def take(self, now: Reading) -> None:
        before, self.last = self.last, now
        jump = (now.wall - before.wall) - (now.monotonic - before.monotonic)
        self._jumps += abs(jump) if abs(jump) >= JUMP_S else 0.0
        self._take_threads(before, now)
        self._take_processes(before, now)

    def _take_threads(self, before: Reading, now: Reading) -> None:
        """One that is new has waited since it began."""
        for tid, times in now.threads.items():
            old = before.threads.get(tid)
            self._involuntary += max(times.involuntary - (old.involuntary if old else 0), 0)
            if times.wait_s is None:
                self._told_wait = False
                continue
            self._wait += max(times.wait_s - ((old.wait_s or 0.0) if old else 0.0), 0.0)

    def _take_processes(self, before: Reading, now: Reading) -> None:
        for pid, row in now.processes.items():
            old = before.processes.get(pid)
            same = old is not None and old.started == row.started
            spent = row.cpu_s - (old.cpu_s if same and old else 0.0)
            if pid in now.own:
                self._cpu += spent
                self._faults += row.major_faults - (old.major_faults if same and old else 0)
            elif pid == os.getpid():
                self._generator += spent
            elif spent > 0:
                self._took[pid, row.started] += spent
                self._names[pid, row.started] = row.name

    def evidence(self, places: Places, compute_threads: int | None) -> HostEvidence:
        first, last = self.first, self.last
        seconds = max(last.monotonic - first.monotonic, 1e-9)
        known = bool(last.own)
        told_quota = known or last.quota is not None
        busy, steal, idle = self._cores(seconds)
        cores = last.cores
        if last.quota is not None:
            cores = min(cores or 1, math.ceil(last.quota.cores))
        return HostEvidence(
            seconds=seconds,
            cores=cores,
            compute_threads=compute_threads,
            threads=len(last.threads) or None,
            cpu_s=self._cpu if known else None,
            wait_s=self._wait if known and self._told_wait and last.threads else None,
            others_s=self._others(busy) if known else None,
            idle_cores=idle,
            steal_share=steal,
            throttled_share=throttled_share(first.quota, last.quota) if told_quota else None,
            stood_s=self._stood(),
            cpu_quota=last.quota.cores if last.quota is not None else None,
            cpu_pressure=self._pressure("cpu", seconds),
            memory_pressure=self._pressure("memory", seconds),
            io_pressure=self._pressure("io", seconds),
            involuntary_per_s=self._involuntary / seconds if last.threads else None,
            major_faults_per_s=self._faults / seconds if known else None,
            swapped_bytes=None if first.swapped_bytes is None or last.swapped_bytes is None
            else last.swapped_bytes - first.swapped_bytes,
            available_share=last.available_share,
            disk_free_bytes=last.disk_free_bytes,
            clock_jump_s=self._jumps,
            busiest=tuple(self._busiest(places, seconds)),
        )  # fmt: skip

    def _stood(self) -> float | None:
        before, now = self.first.quota, self.last.quota
        if now is None or now.stood_s is None:
            return None
        return now.stood_s - ((before.stood_s or 0.0) if before is not None else 0.0)

    def _others(self, busy: float | None) -> float | None:
        return None if busy is None else max(busy - self._cpu - self._generator, 0.0)

    def _cores(self, seconds: float) -> tuple[float | None, float | None, float | None]:
        """Busy seconds, share of steal, and idle cores; of the cores that it may use."""
        before, now = self.first.cpu, self.last.cpu
        if before is None or now is None:
            return None, None, None
        busy, steal = now.busy - before.busy, max(now.steal - before.steal, 0.0)
        asked = busy + steal
        return busy, steal / asked if asked > 0 else 0.0, (now.idle - before.idle) / seconds

    def _pressure(self, kind: str, seconds: float) -> float | None:
        before, now = self.first.pressure.get(kind), self.last.pressure.get(kind)
        return None if before is None or now is None else min((now - before) / seconds, 1.0)

    def _busiest(self, places: Places, seconds: float) -> list[Busy]:
        rows = []
        most = sorted(self._took.items(), key=lambda row: -row[1])[:BUSIEST]
        for (pid, started), spent in most:
            if spent / seconds >= BUSY_CORES:
                name = shown_name(pid, self._names[pid, started], places.proc)
                rows.append(Busy(name, pid, spent / seconds))
        return rows
