"""Profile: where the time of requests goes, and where the engine's.

Before anything is changed the bottleneck has to be found, under a load like the real one. A
request's time is split into its six stages, the engine's into the parts of its steps, and the
forward pass into its kernels. The hot spots are said in words.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine import models
from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError
from engine.execution.load import select_kernels
from engine.execution.products import checkpoint_of, products_for
from engine.models import LoadedModel
from engine.observing.telemetry import STEP_PARTS, STEPS_KEPT
from engine.request import STAGES, SamplingParams
from playbooks.load.arrivals import parse_arrivals
from playbooks.load.client import LoadProgress
from playbooks.load.mix import parse_mix
from playbooks.load.prompts import TextPrompts
from playbooks.load.summary import latency_block
from playbooks.load.targets import EmbeddedTarget
from playbooks.measure.compare import environment
from playbooks.measure.kernel_timer import ORDER, TimedOps
from playbooks.measure.trial import Trial, run_trial, warm_up
from playbooks.measure.witnessed import host_report, less_disturbed
from playbooks.steps import Progress
from playbooks.steps.models import ProfileStep

SCHEMA = 1
HOT = 0.10
"""A part with less of the time is no hot spot."""
FEW_REQUESTS = 10
TRACED_STEPS = 8
TRACED_REQUESTS = 4
FORWARD = ("forward_prefill", "forward_decode", "verify")
LABELS = {
    "gemm": "GEMM",
    "attention": "attention",
    "append_kv": "writing KV",
    "rowwise": "norms and activations",
    "forward_other": "the rest of forward",
    "plan": "planning",
    "draft": "looking for drafts",
    "build": "batch building",
    "sample": "sampling",
    "apply": "applying",
    "telemetry": "telemetry",
}


class TextTarget(EmbeddedTarget):
    """Sends text, so that the tokenizer has its share."""

    def prompts(self, seed: int, shared: int) -> TextPrompts:
        return TextPrompts(seed, shared)


def run_profile(
    config: EngineConfig,
    spec: ProfileStep,
    progress: Progress = lambda *_: None,
    trace_out: Path | None = None,
) -> dict[str, Any]:
    """`trace_out`: a Chrome trace of a few steps goes there.

    Raises ConfigError or ModelError before anything runs, EngineError when a request fails.
    """
    start = time.monotonic()
    config = config.with_(cuda_graphs=False)  # inside a graph nothing can be timed
    ops, loaded = load_timed(config)
    with Engine(config, loaded) as engine:
        warm_up(engine)

        def measure() -> tuple[Trial, dict[str, float]]:
            before = ops.spent_ms()
            trial = _trial(engine, spec, progress)
            return trial, {kind: ms - before[kind] for kind, ms in ops.spent_ms().items()}

        trial, kernels = less_disturbed(measure, lambda found: [found[0].host])
    trace = write_trace(config, loaded, ops, trace_out) if trace_out else None
    stages, parts = stage_table(trial), step_table(trial, kernels)
    return {
        "schema": SCHEMA,
        "kind": "profile",
        "model": loaded.spec.name,
        "identity": loaded.identity,
        "config": config.to_dict(),
        "work": {
            "arrivals": parse_arrivals(spec.arrivals).label,
            "lengths": parse_mix(spec.lengths).label,
            "requests": spec.requests,
            "seed": spec.seed,
        },
        "throughput": trial.summary["throughput"],
        "latency": trial.summary["latency"],
        "in_flight": trial.summary["in_flight"],
        "stages": stages,
        "steps": parts,
        "hot_spots": hot_spots(stages, parts),
        "warnings": warnings(trial),
        "host": host_report([trial.host]),
        "trace": trace,
        "environment": environment(config),
        "seconds": round(time.monotonic() - start, 1),
    }


def load_timed(config: EngineConfig) -> tuple[TimedOps, LoadedModel]:
    """The model with timed kernels."""
    checkpoint = checkpoint_of(config)
    device, backend = select_kernels(config, checkpoint.spec)
    ops, products = TimedOps(backend.ops), products_for(config, checkpoint, backend)
    return ops, models.load(checkpoint, ops, device=device, products=products)


def _trial(engine: Engine, spec: ProfileStep, progress: Progress) -> Trial:
    def show(seen: LoadProgress) -> None:
        progress(seen.done, spec.requests)

    return run_trial(
        engine, parse_arrivals(spec.arrivals), parse_mix(spec.lengths), spec.requests, spec.seed,
        TextTarget(engine, "profile"), show,
    )  # fmt: skip


# --- requests -------------------------------------------------------------------------------


def stage_table(trial: Trial) -> list[dict[str, Any]]:
    """By stage: its share of all request time, and milliseconds a request."""
    rows = [r.stamps.stages_ms for r in trial.records if r.stamps is not None]
    total = sum(map(sum, rows))
    return [
        {
            "stage": stage,
            "share": sum(row[at] for row in rows) / total if total else 0.0,
            "ms": latency_block(row[at] for row in rows),
        }
        for at, stage in enumerate(STAGES)
    ]


# --- the engine -----------------------------------------------------------------------------


def step_table(trial: Trial, kernels: dict[str, float]) -> dict[str, Any]:
    """Time of all steps by part, the forward pass by kernel, and prefill against decode."""
    sums = dict(zip(STEP_PARTS, np.nansum(trial.steps.parts_ms, axis=0).tolist(), strict=True))
    kept = len(trial.steps.ms) / max(trial.totals.get("steps", 0), 1)
    forward = sum(sums[name] for name in FORWARD)
    measured = {kind: ms * min(kept, 1.0) for kind, ms in kernels.items()}
    inside = {kind: measured[kind] for kind in ORDER}
    inside["forward_other"] = max(forward - sum(inside.values()), 0.0)
    outside = {name: sums[name] for name in STEP_PARTS if name not in FORWARD}
    if not outside["draft"]:
        del outside["draft"]
    total = sum(inside.values()) + sum(outside.values())
    return {
        "count": trial.totals.get("steps", 0),
        "mean_ms": float(trial.steps.ms.mean()),
        "mean_rows": float(trial.steps.running.mean()),
        "total_ms": total,
        "parts": [
            {"part": name, "label": LABELS[name], "ms": ms, "share": ms / total if total else 0.0}
            for name, ms in (inside | outside).items()
        ],
        "prefill_share": sums["forward_prefill"] / forward if forward else None,
        "decode_share": sums["forward_decode"] / forward if forward else None,
        "verify_share": sums["verify"] / forward if forward else None,
    }


# --- words ----------------------------------------------------------------------------------

ADVICE = {
    "queue": "requests wait: a larger batch or KV cache lets them in, else less load",
    "tokenize": "give the tokenizer more threads, or send token ids",
    "prefill": "prompts are the work: shorten them, share prefixes, or raise the token budget",
    "decode": "outputs are the work: a larger batch shares each step among more requests",
    "detokenize": "the text side is slow: look at stop strings and at who reads the streams",
    "return": "answers wait for their readers",
}


def hot_spots(stages: list[dict[str, Any]], steps: dict[str, Any]) -> list[str]:
    """The stages and parts with most of the time, a sentence each; the greatest first."""
    spots = []
    for row in sorted(stages, key=lambda row: -row["share"]):
        if row["share"] >= HOT:
            inside = _of_a_step(steps) if row["stage"] in ("prefill", "decode") else None
            parts = f"; a step is {inside}" if inside else ""
            spots.append(
                f"{row['stage']} is {row['share']:.0%} of request time{parts} "
                f"({ADVICE[row['stage']]})"
            )
            steps = {} if inside else steps  # said once
    return spots


def _of_a_step(steps: dict[str, Any]) -> str:
    """ "decoding 52%, sampling 20%"."""
    if not steps:
        return ""
    parts = sorted(steps["parts"], key=lambda part: -part["share"])
    told = parts[:1] + [part for part in parts[1:3] if part["share"] >= 0.03]
    return ", ".join(f"{part['label']} {part['share']:.0%}" for part in told)


def warnings(trial: Trial) -> list[str]:
    notes = []
    flight, count = trial.summary["in_flight"], len(trial.records)
    if count < FEW_REQUESTS or (flight["max"] or 0) < 2:
        notes.append(
            f"{count} request{'s' * (count != 1)}, {flight['max'] or 0} at most at once: batching "
            "and memory behave differently under load, so this profile says little about service"
        )
    if trial.totals.get("steps", 0) > STEPS_KEPT:
        notes.append(f"step times are of the newest {STEPS_KEPT} steps")
    return notes


# --- trace ----------------------------------------------------------------------------------


def write_trace(
    config: EngineConfig, loaded: LoadedModel, ops: TimedOps, path: Path
) -> dict[str, Any]:
    """Chrome trace of a few steps, stepped by hand. Raises ConfigError when it cannot be."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    engine = Engine(config, loaded)
    engine.load()
    for i in range(TRACED_REQUESTS):
        prompt = [(7 * i + j) % loaded.spec.vocab for j in range(24)]
        engine.submit(prompt, SamplingParams(max_tokens=TRACED_STEPS, ignore_eos=True))
    steps, ops.traced = 0, True
    try:
        with torch.profiler.profile(activities=activities) as profiler:
            while steps < TRACED_STEPS and engine.step():
                steps += 1
    finally:
        ops.traced = False
        engine.stop()
    try:
        path.touch()
        profiler.export_chrome_trace(str(path))
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"--trace-out {path}: cannot be written ({error})") from error
    return {"path": str(path), "steps": steps}
