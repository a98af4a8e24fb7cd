"""A trial: one load on one engine, and what the client and the engine say about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.core import Engine, completion
from engine.errors import EngineError
from engine.observing.host import HostEvidence
from engine.observing.telemetry import STEP_PARTS
from engine.request import SamplingParams
from playbooks.load.arrivals import Arrivals
from playbooks.load.client import LoadProgress, LoadResult, run_load
from playbooks.load.mix import Mix
from playbooks.load.record import RequestRecord
from playbooks.load.summary import summarize
from playbooks.load.targets import EmbeddedTarget
from playbooks.load.workload import LoadSpec
from playbooks.measure.bound import Bound, find_bound
from playbooks.measure.witnessed import witness_of

WARM_UP = (32, 4)
"""Prompt and output tokens of the request that goes before the first trial."""
_FIRST = 1 + len(STEP_PARTS)
"""Column of a step's prefill tokens in the telemetry's ring."""


@dataclass(frozen=True)
class TrialSteps:
    """The engine's steps of a trial, one entry each (the newest few thousand)."""

    parts_ms: np.ndarray
    """float [steps, STEP_PARTS]"""
    tokens: np.ndarray
    """Computed in each; 0 where it was padding alone."""
    running: np.ndarray
    waiting: np.ndarray

    @property
    def ms(self) -> np.ndarray:
        total: np.ndarray = self.parts_ms.sum(axis=1)
        return total


@dataclass(frozen=True)
class Trial:
    result: LoadResult
    summary: dict[str, Any]
    """As `evewatch load` reports it."""
    steps: TrialSteps
    totals: dict[str, int]
    """The engine's counters."""
    kv: dict[str, Any]
    bound: Bound
    weights_bytes: int
    host: HostEvidence

    @property
    def records(self) -> list[RequestRecord]:
        """In order of their number, so that two trials' records are pairs."""
        return sorted(self.result.records, key=lambda record: record.index)

    @property
    def wall_s(self) -> float:
        """From the first request to the last token."""
        return (max(r.last for r in self.result.records) - self.result.start) / 1e9

    @property
    def output_tok_s(self) -> float:
        """Of the whole trial, its drain included: what a closed batch is measured by."""
        return sum(r.output_tokens for r in self.result.records) / self.wall_s

    def samples(self, metric: str) -> np.ndarray:
        """`metric` (ttft_ms …) of every request; NaN where it is not defined."""
        values = [getattr(record, metric) for record in self.records]
        return np.array([np.nan if v is None else v for v in values])


def warm_up(engine: Engine) -> None:
    """The first request pays for what is built on first use."""
    prompt, output = WARM_UP
    room = engine.scheduler.max_model_len
    prompt = min(prompt, max(room - output, 1))
    completion(engine.submit([0] * prompt, SamplingParams(output, ignore_eos=True)))


def run_trial(
    engine: Engine,
    arrivals: Arrivals,
    mix: Mix,
    requests: int,
    seed: int,
    target: EmbeddedTarget | None = None,
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> Trial:
    """Serve `requests` requests on a running engine that nobody else uses.

    Raises EngineError when a request fails: a trial that lost some measures nothing.
    """
    engine.reset()
    spec = LoadSpec(arrivals, mix, requests=requests, seed=seed, ignore_eos=True)
    with witness_of(engine) as witness:
        result = run_load(target or EmbeddedTarget(engine, "trial"), spec, on_progress)
    if result.interrupted:
        raise KeyboardInterrupt
    lost = [r for r in result.records if not r.completed]
    if lost:
        raise EngineError(
            f"{len(lost)} of {len(result.records)} requests failed: "
            f"{lost[0].detail or lost[0].error or lost[0].finish_reason}"
        )
    steps = steps_of(engine)
    return Trial(
        result=result,
        summary=summarize(result),
        steps=steps,
        totals=dict(engine.telemetry.totals),
        kv=kv_facts(engine, int(steps.running.max(initial=0))),
        bound=find_bound(engine, steps.tokens, steps.ms, steps.running, steps.waiting),
        weights_bytes=engine.loaded.file_bytes,
        host=witness.evidence,
    )


def steps_of(engine: Engine) -> TrialSteps:
    rows = engine.telemetry.steps.since(0.0)
    rows = rows[np.argsort(rows[:, 0])]
    computed = rows[:, _FIRST] + rows[:, _FIRST + 1]
    running = rows[:, _FIRST + 3]
    return TrialSteps(
        parts_ms=rows[:, 1:_FIRST] / 1e6,
        # Finished rows of a static batch are computed too; how much else is padded is not known.
        tokens=np.where(computed > 0, np.maximum(computed, running), 0),
        running=running,
        waiting=rows[:, _FIRST + 4],
    )


def kv_facts(engine: Engine, most_rows: int) -> dict[str, Any]:
    """What the cache is and held, with the most that was held at once by up to `most_rows`.

    `effective_ratio`: bytes held over fp16's for the same tokens, open slabs and tail waste
    included.
    """
    cache, telemetry, pool = engine.cache, engine.telemetry, engine.pool
    layout, layers = cache.layout, len(cache.layers)
    fp16 = telemetry.kv_tokens * layout.fp16_bytes_per_token * layers
    return {
        "format": layout.fmt.name,
        "bytes_per_token": cache.bytes_per_token,
        "fp16_bytes_per_token": layout.fp16_bytes_per_token * layers,
        "sealed_ratio": layout.sealed_ratio,
        "effective_ratio": telemetry.kv_bytes / fp16 if fp16 else None,
        "held_bytes_per_token": telemetry.kv_bytes / telemetry.kv_tokens if fp16 else None,
        "pages_total": pool.total,
        "peak_pages": pool.peak_used,
        "peak_bytes": pool.peak_used * layout.page_bytes * layers
        + min(cache.slabs, most_rows) * layout.slab_bytes * layers,
        "pool_bytes": cache.bytes,
    }
