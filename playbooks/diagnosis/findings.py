"""What a diagnosis says: a cause with its evidence, what to do, and what would refute it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HEALTHY, INCONCLUSIVE = "healthy", "inconclusive"
LIVE, RESTART = "live", "restart"


@dataclass(frozen=True)
class Finding:
    cause: str
    confidence: float
    """0–1: how far beyond its limit the evidence lies."""
    evidence: tuple[str, ...]
    """Sentences with the numbers."""
    remedy: str
    applies: str | None
    """live, restart, or None where nothing is to be done to the engine."""
    refuted_by: str
    """What would show that it is something else."""
    missing: tuple[str, ...] = ()
    """Of an inconclusive finding: the evidence that was not there."""

    @property
    def is_problem(self) -> bool:
        return self.cause not in (HEALTHY, INCONCLUSIVE)

    def to_dict(self) -> dict[str, Any]:
        return {
            "cause": self.cause,
            "confidence": round(self.confidence, 2),
            "evidence": list(self.evidence),
            "remedy": self.remedy,
            "applies": self.applies,
            "refuted_by": self.refuted_by,
            "missing": list(self.missing),
        }


def confidence(value: float, limit: float, clear: float) -> float:
    """.55 at the limit, .95 where the value is clear, on a line between; `clear` may lie below."""
    share = (value - limit) / (clear - limit)
    return 0.55 + 0.40 * min(max(share, 0.0), 1.0)
