"""Care with production: limits that stop a step, and the share of a target that it may take."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.errors import ConfigError
from engine.snapshot import Snapshot
from playbooks.load.targets import NoMore

WINDOW = 100
"""Newest answers that a guard looks at."""
LEAST = 10
"""With fewer answers a percentile or a rate is no reason to stop."""
GUARDS = {
    "ttft_p99": "ms, of the check's own answers",
    "error_rate": "share of the check's requests that failed, 0-1",
    "waiting": "requests that wait in the target",
}


class GuardTripped(NoMore):
    """The target is worse than the operator wants it to be while the check runs."""


@dataclass(frozen=True)
class Care:
    guards: tuple[tuple[str, float], ...] = ()
    """Names of GUARDS and the value that must not be exceeded."""
    max_share: float | None = None
    """Of the requests that the target runs, those of the check; 0-1."""
    disruptive: bool = False
    """Storms are allowed."""


def parse_guards(texts: Iterable[str]) -> tuple[tuple[str, float], ...]:
    """From NAME=VALUE. Raises ConfigError."""
    found = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if name not in GUARDS or not equals:
            raise ConfigError(
                f"--guard {text!r}: expected one of {', '.join(f'{g}=VALUE' for g in GUARDS)}"
            )
        found.append((name, _number(value, f"--guard {name}")))
    return tuple(found)


def parse_share(text: str) -> float:
    """From 20% or 0.2. Raises ConfigError."""
    percent = text.strip().endswith("%")
    value = _number(text.strip().removesuffix("%"), "--max-share") / (100 if percent else 1)
    if not 0 < value <= 1:
        raise ConfigError(f"--max-share {text}: expected a share above 0 and up to 100%")
    return value


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{where}: {text!r} is not a number of 0 or more")
    return value


@dataclass
class Guard:
    """Of one step: keeps the newest answers, and says what is exceeded."""

    limits: Sequence[tuple[str, float]]
    ttft_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    failed: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def take(self, ttft_ms: float | None, failed: bool) -> None:
        self.failed.append(failed)
        if ttft_ms is not None:
            self.ttft_ms.append(ttft_ms)

    def exceeded(self, seen: Snapshot | None, open_ms: Sequence[float] = ()) -> str | None:
        """In words; None while all is within its limits. `open_ms`: how long each request that has
        no token yet has waited: a target that hangs answers nothing."""
        for name, limit in self.limits:
            value = self._value(name, limit, seen, open_ms)
            if value is not None and value > limit:
                return f"stopped by the guard {name}: {value:.4g} is above {limit:g}"
        return None

    def _value(
        self, name: str, limit: float, seen: Snapshot | None, open_ms: Sequence[float]
    ) -> float | None:
        if name == "waiting":
            return seen.queue.waiting if seen is not None else None
        if name == "error_rate":
            return sum(self.failed) / len(self.failed) if len(self.failed) >= LEAST else None
        times = sorted((*self.ttft_ms, *(ms for ms in open_ms if ms > limit)))
        return times[math.ceil(0.99 * len(times)) - 1] if len(times) >= LEAST else None
