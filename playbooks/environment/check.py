"""One verdict on the environment."""

from __future__ import annotations

from dataclasses import dataclass

PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"


@dataclass(frozen=True)
class Check:
    id: str
    verdict: str
    """pass | warn | fail | skip (there is nothing of the kind here)"""
    value: str
    evidence: str
    remedy: str = ""
    source: str = ""
