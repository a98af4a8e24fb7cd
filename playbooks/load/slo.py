"""Service-level objectives of a load: what a request must meet to count as good."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Protocol

from engine.errors import ConfigError

UNITS = {"": 1.0, "ms": 1.0, "s": 1000.0}


class Timed(Protocol):
    """A completed request, measured or simulated."""

    @property
    def ttft_ms(self) -> float | None: ...
    @property
    def tpot_ms(self) -> float | None: ...
    @property
    def e2e_ms(self) -> float | None: ...


@dataclass(frozen=True)
class Slo:
    """Milliseconds, each None where nothing is asked."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    def met(self, record: Timed) -> bool:
        """What is not defined for it (TPOT of one token) is met."""
        values = (record.ttft_ms, record.tpot_ms, record.e2e_ms)
        limits = (self.ttft, self.tpot, self.e2e)
        return all(
            limit is None or value is None or value <= limit
            for value, limit in zip(values, limits, strict=True)
        )

    def __bool__(self) -> bool:
        return self != Slo()

    def to_dict(self) -> dict[str, float]:
        return {f"{name}_ms": limit for name, limit in asdict(self).items() if limit is not None}


def parse_slo(text: str) -> Slo:
    """`ttft=500,tpot=50ms,e2e=5s`. Raises ConfigError."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in ("ttft", "tpot", "e2e") or name in limits:
            raise ConfigError(f"slo: {text!r}: expected ttft=MS,tpot=MS,e2e=MS, each once at most")
        limits[name] = _milliseconds(text, value)
    return Slo(**limits)


def _milliseconds(text: str, value: str) -> float:
    number = value.rstrip("ms")
    try:
        limit = float(number) * UNITS[value[len(number) :]]
    except (ValueError, KeyError):
        limit = math.nan
    if not 0 < limit < math.inf:
        raise ConfigError(f"slo: {text!r}: expected a time like 500, 500ms or 2s, got {value!r}")
    return limit
