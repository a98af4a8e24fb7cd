"""A load with everything watched that a diagnosis asks for: limits, pages, logs, stages, curve.

`evewatch load` says what clients saw. This says why: it looks into every step of the engine in
this process, and costs it a few counters a step.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import theilslopes

from engine.core import Engine, completion
from engine.observing.host import HostEvidence, Look
from engine.observing.telemetry import STEP_PARTS, StepRecord
from engine.request import STAGES, SamplingParams
from playbooks.checkup.client_view import client_facts
from playbooks.diagnosis import Restarts, StepCurve
from playbooks.load.arrivals import Closed
from playbooks.load.client import LoadProgress, LoadResult, run_load
from playbooks.load.prompts import TextPrompts
from playbooks.load.record import RequestRecord
from playbooks.load.summary import summarize
from playbooks.load.targets import EmbeddedTarget
from playbooks.load.workload import LoadSpec, make_spec
from playbooks.measure.bound import find_bound
from playbooks.measure.profile import TextTarget
from playbooks.measure.replaced import replaced
from playbooks.measure.trial import steps_of
from playbooks.measure.witnessed import witness_of
from playbooks.steps import Progress
from playbooks.steps.models import LoadStep

CURVE_ROWS = (1, 2, 4, 8, 16)
CURVE_PROMPT, CURVE_OUTPUT, CURVE_ROUNDS = 4, 5, 3
LATE = {"p50": (25.0, 0.10), "mean": (50.0, 0.25)}
"""Milliseconds that the generator may be late, or this share of the TTFT where that is more: a
thread of this process may wait for the interpreter, and for a core that others have."""


# --- watching ------------------------------------------------------------------------------


@dataclass
class PoolWatch:
    """Of every step: how many pages were held, and how many of their places had no token."""

    usage: list[tuple[bool, float]] = field(default_factory=list)
    """Did the KV cache keep requests out, and the share of the pages held."""
    waste: list[tuple[bool, float]] = field(default_factory=list)

    @contextmanager
    def on(self, engine: Engine) -> Iterator[None]:
        scheduler, telemetry = engine.scheduler, engine.telemetry
        pool, plain = scheduler.pool, telemetry.step

        def step(record: StepRecord) -> None:
            plain(record)
            shut, places = record.bound_by == "kv", pool.references * pool.page_tokens
            self.usage.append((shut, pool.used / pool.total))
            if places:
                self.waste.append((shut, 1 - scheduler.tokens_in_cache / places))

        with replaced(telemetry, "step", step):
            yield

    @staticmethod
    def mean(noted: Sequence[tuple[bool, float]]) -> float | None:
        """Over the steps without room where there are some, else over all."""
        chosen = [v for shut, v in noted if shut] or [v for _, v in noted]
        return float(np.mean(chosen)) if chosen else None


@dataclass
class LogWatch:
    """What writing log lines costs this process."""

    lines: int = 0
    ns: int = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        plain, lock = logging.Logger.callHandlers, threading.Lock()

        def timed(logger: logging.Logger, record: logging.LogRecord) -> None:
            start = time.monotonic_ns()
            plain(logger, record)
            with lock:
                self.lines += 1
                self.ns += time.monotonic_ns() - start

        with replaced(logging.Logger, "callHandlers", timed):
            yield


# --- step times by rows --------------------------------------------------------------------


def decode_curve(engine: Engine, rows: Sequence[int] = CURVE_ROWS) -> StepCurve | None:
    """Small closed batches of 1, 2, 4 … rows; None when not two sizes fit into the engine.

    The fastest of several steps counts: whatever else this machine does makes steps slower, and
    never faster.
    """
    pool, scheduler = engine.pool, engine.scheduler
    pages = pool.pages_for(CURVE_PROMPT + CURVE_OUTPUT) + 1
    if scheduler.reserve == "max":
        pages = pool.pages_for(scheduler.max_model_len)
    most = min(scheduler.cap, pool.total // pages)
    sizes = [n for n in rows if n <= most]
    if len(sizes) < 2:
        return None
    fastest = dict.fromkeys(sizes, math.inf)
    for _ in range(CURVE_ROUNDS):
        for n in sizes:
            fastest[n] = min(fastest[n], *_decode_steps(engine, n))
    points = tuple((n, ms) for n, ms in fastest.items() if math.isfinite(ms))
    if len(points) < 2:
        return None
    slope, level, *_ = theilslopes([ms for _, ms in points], [n for n, _ in points],
                                   method="joint")  # fmt: skip
    return StepCurve(float(max(level, 1e-3)), max(float(slope), 0.0), points)


def _decode_steps(engine: Engine, rows: int) -> list[float]:
    """Milliseconds of the steps in which exactly so many rows decoded."""
    engine.reset()
    params = SamplingParams(CURVE_OUTPUT, ignore_eos=True)
    streams = [engine.submit([0] * CURVE_PROMPT, params, source="curve") for _ in range(rows)]
    for stream in streams:
        completion(stream)
    steps = steps_of(engine)
    found = [float(ms) for ms in steps.ms[(steps.tokens == rows) & (steps.running == rows)]]
    return found or [math.inf]


# --- the load ------------------------------------------------------------------------------


def load_spec(load: LoadStep) -> LoadSpec:
    """Of a load step. Outputs run to their drawn length."""
    return make_spec(
        load.arrivals,
        load.lengths,
        requests=load.requests,
        duration_s=load.duration_s,
        shared_prefix=load.shared_prefix,
        seed=load.seed,
        ignore_eos=True,
    )


@dataclass(frozen=True)
class Examined:
    """What came of it; `facts` are fields of Evidence."""

    summary: dict[str, Any]
    facts: dict[str, Any]
    stages: dict[str, float]
    parts: dict[str, float]
    interrupted: bool


@dataclass(frozen=True)
class _Counters:
    """What the scheduler and the prefix index count since the engine's start."""

    recomputed: int
    useful: int
    queried: int
    hits: int

    @classmethod
    def of(cls, engine: Engine) -> _Counters:
        scheduler, index = engine.scheduler, engine.pool.index
        queried, hits = (index.queried_tokens, index.hit_tokens) if index is not None else (0, 0)
        return cls(scheduler.recomputed_tokens, scheduler.useful_tokens, queried, hits)


def examine(
    engine: Engine,
    spec: LoadSpec,
    target: type[EmbeddedTarget] = TextTarget,
    tpot_objective_ms: float | None = None,
    progress: Progress = lambda *_: None,
    look: Look | None = None,
) -> Examined:
    """Run the load on a running engine that nobody else uses. `look`: another host than this one.

    Raises EngineError when the engine cannot be used at all; requests that fail are counted.
    """
    curve = decode_curve(engine)
    engine.reset()
    pages, logs = PoolWatch(), LogWatch()
    before, witness = _Counters.of(engine), witness_of(engine, look)

    def show(seen: LoadProgress) -> None:
        progress(seen.done, seen.total or 0)

    with pages.on(engine), logs.on(), witness:
        result = run_load(target(engine, "check"), spec, show)
    summary, times = summarize(result), stage_times(result.records)
    facts = {
        "curve": curve,
        "tpot_objective_ms": tpot_objective_ms or engine.config.tpot_objective_ms,
        **host_facts(witness.evidence),
        "kv_usage": pages.mean(pages.usage),
        "kv_waste": pages.mean(pages.waste),
        **_load_facts(summary, times),
        "tokenize_share": usual_share(result.records, "tokenize"),
        **_step_facts(engine, result, logs, before),
        **_prefix_facts(engine, result, spec, before),
        **client_facts(result.records),
        **_own_process(result),
    }
    if facts["token_gain"] is None and curve is not None:
        facts["token_gain"] = curve.doubling_gain(max(facts["mean_running"] or 0, 1))
    parts = _step_parts(engine)
    return Examined(summary, facts, times, parts, result.interrupted)


def host_facts(host: HostEvidence) -> dict[str, Any]:
    return {
        "host": host,
        "lost_share": host.lost,
        "others_share": host.others_share,
        "steal_share": host.steal_share,
        "throttled_share": host.throttled_share,
    }


def _own_process(result: LoadResult) -> dict[str, Any]:
    """What an engine of this process cannot have: it is one, and its counters are its own."""
    seconds = (result.end - result.start) / 1e9
    return {"restarts": Restarts(0, seconds), "inconsistent": (), "odd_replicas": ()}


def stage_times(records: Sequence[RequestRecord]) -> dict[str, float]:
    """Share of request time by stage."""
    rows = _completed(records)
    total = sum(sum(row) for row in rows)
    if not total:
        return {}
    sums = np.sum(rows, axis=0)
    return {stage: float(ms / total) for stage, ms in zip(STAGES, sums, strict=True)}


def usual_share(records: Sequence[RequestRecord], stage: str) -> float | None:
    """Of the middle request: one that the machine held up says nothing about the others."""
    place = STAGES.index(stage)
    shares = [row[place] / sum(row) for row in _completed(records) if sum(row)]
    return float(np.median(shares)) if shares else None


def _completed(records: Sequence[RequestRecord]) -> list[tuple[float, ...]]:
    return [r.stamps.stages_ms for r in records if r.completed and r.stamps is not None]


def _load_facts(summary: dict[str, Any], stages: dict[str, float]) -> dict[str, Any]:
    counts, latency = summary["requests"], summary["latency"]
    return {
        "requests": counts["sent"],
        "error_rate": counts["error_rate"],
        "tpot_ms": latency["tpot_ms"]["p50"],
        "queue_share": stages.get("queue"),
        "decode_share": stages.get("decode"),
        "generator_late_ms": lateness(summary),
    }


def lateness(summary: dict[str, Any]) -> float | None:
    """Milliseconds that the generator was late where that is more than is tolerable, else 0;
    None when nothing was sent that could be late."""
    ttft = summary["latency"]["ttft_ms"]["p50"] or 0.0
    known = [
        (late, max(floor, share * ttft))
        for what in ("send_delay_ms", "loop_lag_ms")
        for figure, (floor, share) in LATE.items()
        if (late := summary[what][figure]) is not None
    ]
    return max((late for late, most in known if late > most), default=0.0) if known else None


def _step_facts(
    engine: Engine, result: LoadResult, logs: LogWatch, before: _Counters
) -> dict[str, Any]:
    steps, totals = steps_of(engine), Counter(engine.telemetry.totals)
    count, spent = totals["steps"], float(steps.ms.sum())
    bound = find_bound(engine, steps.tokens, steps.ms, steps.running, steps.waiting)
    now = _Counters.of(engine)
    recomputed, useful = now.recomputed - before.recomputed, now.useful - before.useful
    wall_ms = (max((r.last for r in result.records), default=0) - result.start) / 1e6
    kept = len(steps.ms) / max(count, 1)  # the ring holds the newest few thousand
    return {
        "mean_running": float(steps.running @ steps.ms / spent) if spent else None,
        "waiting_share": float((steps.waiting > 0).mean()) if len(steps.waiting) else None,
        "kv_limited_share": totals["bound_kv"] / count if count else None,
        "batch_limited_share": totals["bound_cap"] / count if count else None,
        "token_limited_share": totals["bound_token_budget"] / count if count else None,
        "busy_share": min(spent / kept / wall_ms, 1.0) if wall_ms > 0 and kept else None,
        "token_gain": bound.gain,
        "token_budget": engine.config.token_budget,
        "preemption_tax": recomputed / useful if useful else None,
        **_draft_facts(engine),
        "logging_share": logs.ns / 1e6 / (spent / kept) if spent and kept else None,
        "log_lines_per_request": logs.lines / len(result.records) if result.records else None,
    }


def _draft_facts(engine: Engine) -> dict[str, float | None]:
    speculation = engine.loop.speculation
    drafts = engine.telemetry.drafts(engine.clock.ns() / 1e9)
    if speculation is None:
        return {}
    return {
        "draft_accepted_ratio": drafts.ratio,
        "draft_gain": drafts.gain(speculation.times.row),
    }


def _step_parts(engine: Engine) -> dict[str, float]:
    sums = np.nansum(steps_of(engine).parts_ms, axis=0)
    total = float(sums.sum())
    return {n: float(ms) / total for n, ms in zip(STEP_PARTS, sums, strict=True)} if total else {}


def _prefix_facts(
    engine: Engine, result: LoadResult, spec: LoadSpec, before: _Counters
) -> dict[str, Any]:
    """Hits that equal beginnings should have given, and those that there were."""
    size, now = engine.pool.page_tokens, _Counters.of(engine)
    done = [r for r in result.records if r.completed]
    prompt = sum(r.prompt_tokens for r in done)
    queried, hits = now.queried - before.queried, now.hits - before.hits
    ratio = hits / queried if queried else 0.0
    if not prompt:
        return {"prefix_expected": None, "prefix_hit_ratio": None}
    if not spec.shared_prefix:
        return {"prefix_expected": 0.0, "prefix_hit_ratio": ratio}
    words = TextPrompts(spec.words_seed, spec.shared_prefix).make(0, spec.shared_prefix + 1)
    common = " ".join(words.split()[: spec.shared_prefix])
    shared = len(engine.loaded.tokenizer.encode(common)) // size * size
    first = spec.arrivals.users if isinstance(spec.arrivals, Closed) else 1
    later = max(len(done) - first, 0)  # the first ones come at once and find nothing
    return {"prefix_expected": later * shared / prompt, "prefix_hit_ratio": ratio}
