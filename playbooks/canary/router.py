"""Which side of a canary serves a user: sticky, and monotone in the share.

Every user has a fixed place between 0 and 1, and the candidate serves those below the share.
Who is on the candidate at 10 % therefore still is at 50 %, and nobody moves twice.
"""

from __future__ import annotations

import hashlib

BASELINE, CANDIDATE = "baseline", "candidate"
SIDES = (BASELINE, CANDIDATE)
_BITS = 53
"""As many as a float can tell apart: 64 of them would round up to 1."""


def place(user: str, salt: str = "") -> float:
    """The user's place in [0, 1): the same on every machine and in every run."""
    digest = hashlib.blake2b(f"{salt}\0{user}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> (64 - _BITS)) / (1 << _BITS)


class Router:
    """`salt` tells canaries apart, so that it is not always the same users who try things out."""

    def __init__(self, salt: str = "", share: float = 0.0) -> None:
        self._salt = salt
        self.share = share

    @property
    def share(self) -> float:
        """Of the users that the candidate serves, 0–1. Setting it counts for the next request."""
        return self._share

    @share.setter
    def share(self, share: float) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"share {share} is outside 0 … 1")
        self._share = share

    def side(self, user: str) -> str:
        return CANDIDATE if place(user, self._salt) < self._share else BASELINE
