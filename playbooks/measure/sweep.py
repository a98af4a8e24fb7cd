"""Sweep: throughput and tail latency over the batch size, and where to stop.

A ladder of closed loops: N users who each wait for their answer keep N requests in the engine.
The knee is the last N whose doubling is still worth it; the recommended cap lies a little
before it. A point counts only if Little's law closes on it (N = throughput × time in the
system), and where the points do not support a knee the sweep says so instead of naming one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from engine.config import EngineConfig
from engine.core import Engine
from engine.models import LoadedModel
from playbooks.load.arrivals import Closed
from playbooks.load.client import LoadProgress
from playbooks.load.mix import Mix
from playbooks.load.record import RequestRecord
from playbooks.load.summary import latency_block, summarize
from playbooks.measure.compare import environment
from playbooks.measure.trial import Trial, run_trial, warm_up
from playbooks.measure.witnessed import host_report, less_disturbed, most_lost
from playbooks.measure.work import even_mix
from playbooks.statistics.intervals import Interval, positive_interval
from playbooks.statistics.knee import (
    CAP_SHARE,
    DOUBLING_GAIN,
    LEAST_POINTS,
    Bend,
    KneeVerdict,
    judge_knee,
)
from playbooks.steps import Progress
from playbooks.steps.models import SweepStep

SCHEMA = 1
LITTLE_WITHIN = 0.05
FILLER = 1.5
"""Requests a user sends after those that count."""
LATENCIES = ("e2e_ms", "ttft_ms", "tpot_ms", "queue_ms")


def measured(spec: SweepStep, batch: int) -> int:
    """Requests of a run that count."""
    return max(spec.least_requests + batch, spec.requests_per_user * batch)


def planned(spec: SweepStep, batch: int) -> int:
    """Those, and more that keep the batch full until the last of them has its answer."""
    return measured(spec, batch) + math.ceil(FILLER * batch)


@dataclass
class Point:
    """One batch size and its trials."""

    batch: int
    trials: list[Trial] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        return [t.summary["throughput"]["output_tok_s"] for t in self.trials]

    @property
    def throughput(self) -> float:
        return float(np.exp(np.mean(np.log(self.rates))))

    @property
    def interval(self) -> Interval | None:
        return positive_interval(self.rates)

    @property
    def little_error(self) -> float:
        """|N − X·R| / N over all repeats: how well throughput and latency agree."""
        in_system = [_in_system(trial) for trial in self.trials]
        return abs(self.batch - float(np.mean(in_system))) / self.batch

    @property
    def doubts(self) -> str | None:
        """Why the point does not count, or None."""
        if not all(t.summary["window"]["steady"] for t in self.trials):
            return "too short for a steady state"
        if self.little_error > LITTLE_WITHIN:
            return f"Little's law is off by {self.little_error:.0%}"
        return None

    @property
    def lost(self) -> float:
        """Of its machine, at worst."""
        return most_lost([trial.host for trial in self.trials])

    @property
    def bound_by(self) -> str:
        """kv | token_budget | compute | cap: what kept it from more."""
        kinds = []
        for trial in self.trials:
            bound = trial.bound
            limit = {"load": "cap", "batch": "cap"}.get(bound.limited_by, bound.limited_by)
            worth = bound.gain is None or bound.gain >= DOUBLING_GAIN
            kinds.append(limit if worth or limit == "token_budget" else "compute")
        return max(kinds, key=kinds.count)

    def latency(self, metric: str) -> dict[str, Any]:
        return latency_block(np.concatenate([_samples(t, metric) for t in self.trials]))

    def to_dict(self) -> dict[str, Any]:
        i = self.interval
        return {
            "batch": self.batch,
            "output_tok_s": self.throughput,
            "low": i.low if i else None,
            "high": i.high if i else None,
            "repeats": self.rates,
            "latency": {name: self.latency(name) for name in LATENCIES},
            "little_error": self.little_error,
            "lost": self.lost,
            "counts": self.doubts is None,
            "doubts": self.doubts,
            "bound_by": self.bound_by,
            "doubling_gain": self.trials[0].bound.gain,
            "mean_running": float(np.mean([t.bound.mean_running for t in self.trials])),
            "peak_pages": max(t.kv["peak_pages"] for t in self.trials),
        }


def _without_filler(trial: Trial, count: int) -> Trial:
    """Measured up to the sending of the first so many; what came after only kept the load up."""
    end = trial.records[count - 1].scheduled
    return replace(trial, summary=summarize(replace(trial.result, issued_until=end)))


def _in_system(trial: Trial) -> float:
    """Requests in the system by Little's law, X·R.

    X is the token rate over the tokens of a request: in a short window tokens come evenly, and
    ends of requests do not.
    """
    inside = _in_window(trial)
    if not inside:
        return 0.0
    tokens = np.mean([r.output_tokens for r in inside])
    seconds = np.mean([r.e2e_ms or 0.0 for r in inside]) / 1e3
    return float(trial.summary["throughput"]["output_tok_s"] / tokens * seconds)


def _in_window(trial: Trial) -> list[RequestRecord]:
    """The requests that were due in the measuring window."""
    window, start = trial.summary["window"], trial.result.start
    begin, end = window["begin_s"], window["end_s"]
    return [r for r in trial.records if begin <= (r.scheduled - start) / 1e9 <= end]


def _samples(trial: Trial, metric: str) -> np.ndarray:
    values = [getattr(record, metric) for record in _in_window(trial)]
    return np.array([v for v in values if v is not None], dtype=float)


def run_sweep(
    config: EngineConfig,
    spec: SweepStep,
    progress: Progress = lambda *_: None,
    loaded: LoadedModel | None = None,
) -> dict[str, Any]:
    """Raises ConfigError or ModelError before anything runs, EngineError when a request fails."""
    start = time.monotonic()
    mix = even_mix(spec.lengths, spec.least_requests)
    most = spec.batches[-1]
    config = config.with_(
        max_batch=most,
        min_batch=min(config.min_batch, most),
        dynamic_batch=False,
        token_budget=max(config.token_budget, most),
    )
    points = {n: Point(n) for n in spec.batches}
    with Engine(config, loaded) as engine:
        warm_up(engine)
        ladder = _Ladder(engine, spec, mix, progress)
        ladder.climb(list(points.values()))
        outcome = judge(list(points.values()), spec)
        if spec.refine and outcome.knee is not None:
            for n in between(outcome.knee, sorted(points)):
                points[n] = Point(n)
                ladder.climb([points[n]])
            outcome = judge([points[n] for n in sorted(points)], spec)
        name, identity = engine.loaded.spec.name, engine.loaded.identity
    rows = [points[n] for n in sorted(points)]
    return {
        "schema": SCHEMA,
        "kind": "sweep",
        "model": name,
        "identity": identity,
        "config": config.to_dict(),
        "work": {
            "lengths": mix.label,
            "seed": spec.seed or 0,
            "repeats": spec.repeats,
            "p99_objective_ms": spec.p99_objective_ms,
            "p99_of": f"{spec.p99_of}_ms",
        },
        "points": [point.to_dict() for point in rows],
        **outcome.to_dict(),
        "host": host_report([trial.host for point in rows for trial in point.trials]),
        "environment": environment(config),
        "seconds": round(time.monotonic() - start, 1),
    }


class _Ladder:
    """Runs points, all of them once before any of them twice."""

    def __init__(self, engine: Engine, spec: SweepStep, mix: Mix, progress: Progress) -> None:
        self._engine, self._spec, self._mix = engine, spec, mix
        self._progress, self._done, self._total = progress, 0, 0

    def climb(self, points: Sequence[Point]) -> None:
        spec = self._spec
        self._total += spec.repeats * sum(planned(spec, p.batch) for p in points)
        for repeat in range(spec.repeats):
            for point in points:
                point.trials.append(self._trial(point.batch, (spec.seed or 0) + repeat))

    def _trial(self, batch: int, seed: int) -> Trial:
        done, count = self._done, planned(self._spec, batch)

        def show(progress: LoadProgress) -> None:
            self._progress(done + progress.done, self._total)

        def measure() -> Trial:
            return run_trial(self._engine, Closed(batch), self._mix, count, seed, on_progress=show)

        trial = less_disturbed(measure, lambda trial: [trial.host])
        trial = _without_filler(trial, measured(self._spec, batch))
        self._done += count
        self._progress(self._done, self._total)
        return trial


def between(knee_at: int, sizes: Sequence[int]) -> Iterator[int]:
    """A size between the knee's two rungs, and its double, where they are not measured yet."""
    below = max((n for n in sizes if n <= knee_at), default=knee_at)
    above = min((n for n in sizes if n > knee_at), default=knee_at)
    middle = round(math.sqrt(below * above))
    for n in (middle, 2 * middle):
        if n not in sizes and n < sizes[-1]:
            yield n


# --- what the points say ------------------------------------------------------------------


@dataclass(frozen=True)
class SweepVerdict:
    knee: int | None = None
    recommended_cap: int | None = None
    reasons: tuple[str, ...] = ()
    """Why there is no knee, or why the cap is what it is."""
    bend: Bend | None = None

    @property
    def abstained(self) -> bool:
        return self.knee is None

    def to_dict(self) -> dict[str, Any]:
        return {
            "knee": self.knee,
            "recommended_cap": self.recommended_cap,
            "abstained": self.abstained,
            "reasons": list(self.reasons),
            "segmented_fit": asdict(self.bend) | {"ratio": self.bend.ratio} if self.bend else None,
        }


def judge(points: Sequence[Point], spec: SweepStep) -> SweepVerdict:
    """The knee and the cap, or why there is none."""
    good = [p for p in points if p.doubts is None]
    found = judge_knee([p.batch for p in good], [p.rates for p in good], [p.lost for p in good])
    if found.knee is None or found.bend is None:
        doubts = [f"batch {p.batch}: {p.doubts}" for p in points if p.doubts is not None]
        few = len(good) < LEAST_POINTS
        return SweepVerdict(bend=found.bend, reasons=(found.reason, *(doubts if few else ())))
    return _recommend(good, found, spec)


def _recommend(good: Sequence[Point], verdict: KneeVerdict, spec: SweepStep) -> SweepVerdict:
    """The cap: a share of the knee, and under the objective where one is given."""
    found, bend = verdict.knee, verdict.bend
    assert found is not None
    cap = max(1, math.floor(CAP_SHARE * found))
    reasons = [f"{CAP_SHARE:.0%} of the {verdict.text}"]
    if spec.p99_objective_ms is not None:
        limit, why = largest_under(good, spec.p99_objective_ms, f"{spec.p99_of}_ms")
        reasons.append(why)
        if limit is None:
            return SweepVerdict(found, None, tuple(reasons), bend)
        cap = min(cap, limit)
    return SweepVerdict(found, cap, tuple(reasons), bend)


def largest_under(good: Sequence[Point], objective: float, metric: str) -> tuple[int | None, str]:
    """The largest batch whose P99 is under the objective, between rungs on a line."""
    label = metric.removesuffix("_ms").upper()
    known = [(p.batch, p.latency(metric)["p99"]) for p in good]
    tails = [(batch, p99) for batch, p99 in known if p99 is not None]
    if not tails:
        return None, f"{label} p99: n too small; give more requests or repeats"
    if tails[0][1] > objective:
        at, p99 = tails[0]
        return None, f"{label} p99 is {p99:.0f} ms at batch {at} already, over {objective:.0f} ms"
    over = next((i for i, (_, p99) in enumerate(tails) if p99 > objective), None)
    if over is None:
        return tails[-1][0], f"{label} p99 is under {objective:.0f} ms up to batch {tails[-1][0]}"
    (low, before), (high, after) = tails[over - 1], tails[over]
    share = (objective - before) / (after - before)
    limit = math.floor(low + share * (high - low))
    return limit, f"{label} p99 reaches {objective:.0f} ms at batch {limit}"
