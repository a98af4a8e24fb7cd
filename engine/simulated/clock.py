"""A clock that stands still until it is moved."""

from __future__ import annotations


class VirtualClock:
    """`start` ns, which is the moment `unix` (seconds since 1970)."""

    def __init__(self, start: int = 1, unix: float = 0.0) -> None:
        self._ns = start
        self._origin = unix - start / 1e9

    def ns(self) -> int:
        return self._ns

    def unix(self) -> float:
        return self._origin + self._ns / 1e9

    def advance(self, ns: int) -> None:
        self._ns += ns

    def move_to(self, ns: int) -> None:
        """Forward only: a moment that has passed is ignored."""
        self._ns = max(self._ns, ns)
