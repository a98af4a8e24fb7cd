"""Shapes of evidence that clients see of any engine: tails, restarts, figures beyond the usual."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tail:
    """Requests that took far longer than others that were sent at the same load."""

    requests: int
    """All that were looked at."""
    slow: int = 0
    typical_ms: float = 0.0
    slow_ms: float = 0.0
    """The middle one of the slow, beyond what is typical."""
    where: str = "the first token"
    """What they waited for: the first token, or the next one."""
    every: int | None = None
    """They are so many requests apart, all alike."""
    every_s: float | None = None
    """Or so many seconds."""
    pauses: int = 0
    """So often nobody got a token: not some requests waited, the target stood still."""
    stood_share: float = 0.0
    """Of the time in which requests were open, those pauses."""
    at: str = ""
    """The address that they were sent to, where there were several."""

    @property
    def share(self) -> float:
        return self.slow / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Restarts:
    """How often the target's counters began again while they were watched."""

    count: int
    watched_s: float


@dataclass(frozen=True)
class Broken:
    """Streams that ended before their answer did, or that were none."""

    requests: int
    streams: int
    """Of the requests, those whose stream broke."""
    how: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deviation:
    """One figure of a run beside what is usual for it."""

    name: str
    """STEP.METRIC."""
    now: float
    usual: float
    """Median of the last healthy runs."""
    worse: float
    """How much worse it is, as a share of the usual: .5 takes half as long again."""

    def __str__(self) -> str:
        return f"{self.name} {self.now:.4g}, usually {self.usual:.4g}"


@dataclass(frozen=True)
class Usual:
    """A run beside the last healthy ones of its kind."""

    runs: int
    """Healthy ones that it is held against."""
    limit: float
    """Worse by a larger share than this is no chance."""
    slower: tuple[Deviation, ...] = ()
    """Figures of speed, where their middle one is beyond the limit."""
    worse: tuple[Deviation, ...] = ()
    """Figures of the answers and of errors that are beyond it."""
    changed: tuple[str, ...] = ()
    """Settings, environment and log entries since the last healthy run."""
