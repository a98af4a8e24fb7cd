"""How often something is right: old outcomes count less and less. No torch."""

from __future__ import annotations

from dataclasses import dataclass

FORGET_ALL = 0.999
"""Weight that outcomes of all requests together keep with each new one."""
DOUBT = 4.0
"""Outcomes that what is known of all requests counts for in one request."""


@dataclass(slots=True)
class Odds:
    right: float = 0.0
    seen: float = 0.0

    def note(self, right: bool, forget: float) -> None:
        self.right = self.right * forget + right
        self.seen = self.seen * forget + 1.0

    @property
    def share(self) -> float:
        """Of all that was seen."""
        return self.right / self.seen

    def among(self, known: Odds) -> float:
        """Drawn towards the share of all, the more so the less was seen."""
        return (self.right + DOUBT * known.share) / (self.seen + DOUBT)
