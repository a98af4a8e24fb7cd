"""What is known about the two sides during a stage, in a form that rules can be tried on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import nnls

from playbooks.canary.router import BASELINE, CANDIDATE
from playbooks.load.limits import CLIENT_LIMIT
from playbooks.load.record import EMPTY, INTERRUPTED, NOT_SENT, RequestRecord
from playbooks.load.summary import latency_block

Held = Callable[[int, int], int]
"""Nanoseconds between two moments in which a side stood back for the other."""
FAULTS = frozenset(
    {"error", "engine_stopped", "http_500", "http_502", "connect", "dropped", "bad_stream",
     "api_error", "aborted"}
)  # fmt: skip
"""Failures that are the engine's own; a time-out or a refusal may be a matter of load."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request that has ended, or is open and has waited for `e2e_ms` so far.

    Times are the side's own: what it stood back for the other one in this process is not in them.
    """

    prompt: int
    output: int
    """In tokens."""
    e2e_ms: float | None = None
    """None where it failed."""
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    error: str | None = None

    @classmethod
    def of(cls, record: RequestRecord, held_ns: Held) -> Sample | None:
        """None for a request that was interrupted, or that was not to be or could not be sent from
        here: no side failed it."""
        if record.finish_reason == INTERRUPTED or record.error in (CLIENT_LIMIT, NOT_SENT):
            return None
        prompt = record.prompt_tokens or record.prompt_asked
        output = record.output_tokens or record.output_asked
        if not record.completed:
            return cls(prompt, output, error=record.error or EMPTY)

        def own_ms(start: int, end: int) -> float:
            return (end - start - held_ns(start, end)) / 1e6

        due, first, last = record.scheduled, record.first, record.last
        tpot = own_ms(first, last) / (output - 1) if output > 1 else None
        return cls(prompt, output, own_ms(due, last), own_ms(due, first), tpot)

    @classmethod
    def waiting(cls, record: RequestRecord, now: int, held_ns: Held) -> Sample:
        """Of an open request, as long as it has taken by now."""
        age, first = now - record.scheduled, record.first or now
        ttft = first - record.scheduled - held_ns(record.scheduled, first)
        e2e = age - held_ns(record.scheduled, now)
        return cls(record.prompt_asked, record.output_asked, e2e / 1e6, ttft / 1e6)

    @property
    def is_fault(self) -> bool:
        return self.error in FAULTS


@dataclass(frozen=True, slots=True)
class Gauge:
    """Something that can run out."""

    name: str
    value: float
    limit: float
    unit: str = "B"
    exact: bool = False
    """It does not move with the load: whatever it gains is lost."""


@dataclass
class GaugeSeries:
    """One gauge over time."""

    name: str
    limit: float
    """The latest."""
    unit: str = "B"
    exact: bool = False
    at_s: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, at_s: float, gauge: Gauge) -> None:
        self.at_s.append(at_s)
        self.values.append(gauge.value)
        self.limit = gauge.limit


@dataclass
class Probes:
    """What one side made of the marked prompts amid traffic, against itself when alone."""

    asked: int = 0
    differing: int = 0
    mixed: int = 0
    """Answers with another client's mark."""
    failed: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"examples": self.examples[:4]}


@dataclass(frozen=True)
class CanaryQuality:
    """The check before any traffic: greedy golden answers, and distributions where embedded."""

    verdict: str
    """pass | warn | fail | inconclusive"""
    reasons: list[str] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)
    suspects: list[dict[str, Any]] = field(default_factory=list)
    note: str | None = None
    """What could not be measured."""


@dataclass
class CanaryEvidence:
    """Everything that a look may use."""

    samples: dict[str, list[Sample]] = field(default_factory=lambda: {BASELINE: [], CANDIDATE: []})
    """Of this stage, by side; the baseline's may be those of its time alone."""
    faults: int = 0
    """Of the candidate, over the whole canary."""
    memory: dict[str, GaugeSeries] = field(default_factory=dict)
    """The candidate's gauges: exact ones over the whole canary, others of this stage."""
    probes: dict[str, Probes] = field(
        default_factory=lambda: {BASELINE: Probes(), CANDIDATE: Probes()}
    )
    quality: CanaryQuality | None = None

    def answered(self, side: str) -> list[Sample]:
        return [s for s in self.samples[side] if s.error is None]

    def errors(self, side: str) -> tuple[int, int]:
        """Failed, and all."""
        return sum(s.error is not None for s in self.samples[side]), len(self.samples[side])

    def tails(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """`metric` of the answered requests of both sides, baseline first."""
        base, candidate = self.answered(BASELINE), self.answered(CANDIDATE)
        if metric == "slowdown":
            needs = usual_ms(base)
            return _slowdown(base, needs), _slowdown(candidate, needs)
        return _values(base, metric), _values(candidate, metric)


def usual_ms(samples: Sequence[Sample]) -> np.ndarray:
    """E2E over lengths: float [3], milliseconds of a request, a prompt token, an output token.

    Non-negative least squares of relative errors, so that long answers do not decide alone.
    """
    if not samples:
        return np.zeros(3)
    rows = _lengths(samples)
    e2e = np.array([max(s.e2e_ms or 0.0, 1e-6) for s in samples])
    found, _ = nnls(rows / e2e[:, None], np.ones(len(e2e)))
    return np.asarray(found)


def _slowdown(samples: Sequence[Sample], needs: np.ndarray) -> np.ndarray:
    usual = np.maximum(_lengths(samples) @ needs, 1e-6)
    return np.array([s.e2e_ms or 0.0 for s in samples]) / usual


def _lengths(samples: Sequence[Sample]) -> np.ndarray:
    return np.array([(1.0, s.prompt, s.output) for s in samples]).reshape(-1, 3)


def _values(samples: Sequence[Sample], metric: str) -> np.ndarray:
    values = (getattr(s, f"{metric}_ms") for s in samples)
    return np.array([v for v in values if v is not None])


def side_dict(samples: Sequence[Sample]) -> dict[str, Any]:
    """A side of a stage, as the report has it."""
    failed = [s.error for s in samples if s.error is not None]
    good = [s for s in samples if s.error is None]
    return {
        "requests": len(samples),
        "answered": len(good),
        "failed": len(failed),
        "errors": {kind: failed.count(kind) for kind in sorted(set(failed))},
        "latency": {
            name: latency_block(getattr(s, name) for s in good)
            for name in ("ttft_ms", "tpot_ms", "e2e_ms")
        },
    }
