"""What the console remembers: one ring per series, fed by Snapshots, read by graphs.

Only live Snapshots enter, so graphs stop when the numbers do.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from engine.snapshot import Snapshot, SourceState

CAPACITY = 7200
"""Samples kept per series: an hour at two a second."""

READERS: dict[str, Callable[[Snapshot], float | None]] = {
    "waiting": lambda s: s.queue.waiting,
    "arrivals": lambda s: s.queue.arrivals_per_s,
    "wait_p50": lambda s: s.queue.wait_ms.p50,
    "running": lambda s: s.batch.running,
    "cap": lambda s: s.batch.cap,
    "step": lambda s: s.batch.step_ms,
    "preempted": lambda s: s.batch.preemptions_total,
    "output": lambda s: s.batch.output_tok_s,
    "usage": lambda s: s.kv.usage,
    "waste": lambda s: s.kv.fragmentation_ratio,
    "ttft_p50": lambda s: s.latency.ttft_ms.p50,
    "ttft_p99": lambda s: s.latency.ttft_ms.p99,
    "tpot_p50": lambda s: s.latency.tpot_ms.p50,
    "tpot_p99": lambda s: s.latency.tpot_ms.p99,
    "itl_p50": lambda s: s.latency.itl_ms.p50,
    "itl_p99": lambda s: s.latency.itl_ms.p99,
    "e2e_p50": lambda s: s.latency.e2e_ms.p50,
    "e2e_p99": lambda s: s.latency.e2e_ms.p99,
    "cpu": lambda s: s.memory.cpu_percent,
    "rss": lambda s: s.memory.rss_bytes,
    "read": lambda s: s.memory.bandwidth_bytes_s,
    "gpu": lambda s: s.gpus[0].utilisation if s.gpus else None,
    "gpu_power": lambda s: s.gpus[0].power_w if s.gpus else None,
}


class Series:
    """Samples of one number over time; a missing or broken one is kept as a gap."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._samples: deque[tuple[float, float | None]] = deque(maxlen=capacity)

    def push(self, time: float, value: float | None) -> None:
        good = value is not None and math.isfinite(value)
        self._samples.append((time, value if good else None))

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def newest(self) -> float | None:
        return self._samples[-1][1] if self._samples else None

    def bins(self, now: float, count: int, bin_s: float) -> list[float | None]:
        """The highest value in each of `count` spans of `bin_s` seconds up to `now`, the
        oldest first; None where empty. A spike is never averaged away.

        Spans start at whole multiples of `bin_s`, so a graph moves by whole cells.
        """
        last = math.floor(now / bin_s)
        first = last - count + 1
        highest: list[float | None] = [None] * count
        for time, value in reversed(self._samples):
            index = math.floor(time / bin_s) - first
            if index < 0:
                break
            if value is not None and index < count:
                known = highest[index]
                highest[index] = value if known is None else max(known, value)
        return highest

    def change(self, now: float, span_s: float) -> float:
        """By how much a counter grew in the last `span_s` seconds; 0 when not known."""
        late = takewhile(lambda sample: sample[0] >= now - span_s, reversed(self._samples))
        recent = [value for _, value in late if value is not None]
        return recent[0] - recent[-1] if recent else 0.0

    def mean(self, since: float, until: float) -> float | None:
        """Of the samples after `since` up to `until`, Unix seconds; None without any."""
        total, count = 0.0, 0
        for time, value in reversed(self._samples):
            if time <= since:
                break
            if time <= until and value is not None:
                total, count = total + value, count + 1
        return total / count if count else None


class History:
    """All series. `push` ignores a Snapshot that is not live or was seen before."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.series = {name: Series(capacity) for name in READERS}
        self._last_seq: int | None = None
        self.newest_time = 0.0
        """Time of the newest sample, Unix seconds: the right edge of every graph."""

    def push(self, snapshot: Snapshot) -> None:
        if snapshot.source.state is not SourceState.LIVE or snapshot.seq == self._last_seq:
            return
        self._last_seq = snapshot.seq
        self.newest_time = snapshot.time
        for name, read in READERS.items():
            self.series[name].push(snapshot.time, read(snapshot))

    def __getitem__(self, name: str) -> Series:
        return self.series[name]
