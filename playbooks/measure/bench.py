"""The closed-batch benchmark: a fixed set of requests, all submitted at once.

It reports how fast they were served, and beside it the limits of this machine: the best rates
at which any GEMM at hand runs this model's own shapes, in float32 and in integers, measured in the
same process right before and right after each run. The `roofline_fraction` (`integer_fraction`) is
what the whole engine reached of the mean of the two looks, and it is the number that compares
across machines. An engine that multiplies integers may pass the first of them.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.config import EngineConfig
from engine.core import Completion, Engine, completion
from engine.errors import ConfigError, EngineError
from engine.observing.machine import cores
from engine.request import SamplingParams
from playbooks.load.lengths import Lognormal
from playbooks.load.summary import latency_block
from playbooks.measure.crosstalk import check_crosstalk
from playbooks.measure.machine_limits import Look, limit_rows, limits
from playbooks.measure.trial import kv_facts, warm_up
from playbooks.measure.witnessed import host_report, less_disturbed, witness_of
from playbooks.steps.models import BenchWork

SCHEMA = 1
LEAST_PAIRS = 3
"""Of runs without and with the console."""
KV = (
    "format", "bytes_per_token", "sealed_ratio", "effective_ratio", "pages_total", "peak_pages",
    "pool_bytes",
)  # fmt: skip
"""What is reported of the cache."""


class Guest(Protocol):
    """Something else that goes on in the process."""

    def cpu_s(self) -> float | None:
        """CPU seconds of its threads so far; None where that cannot be read."""


Beside = Callable[[Engine], AbstractContextManager[Guest]]


@dataclass(frozen=True)
class BenchRequest:
    """One request: a prompt (text or token ids) and how many tokens come back."""

    prompt: str | list[int]
    output: int


def make_work(spec: BenchWork, vocab: int, longest: int) -> list[BenchRequest]:
    """The requests. Raises ConfigError when they cannot be made."""
    if spec.workload is not None:
        return read_workload(Path(spec.workload))
    rng = np.random.default_rng(spec.seed)
    half = max(longest // 2, 1)
    prompts = Lognormal.with_mean(spec.prompt_mean, spec.sigma, half).spread(rng, spec.requests)
    outputs = Lognormal.with_mean(spec.output_mean, spec.sigma, half).spread(rng, spec.requests)
    return [
        BenchRequest(rng.integers(0, vocab, size=p).tolist(), o)
        for p, o in zip(prompts, outputs, strict=True)
    ]


def read_workload(path: Path) -> list[BenchRequest]:
    """A JSON list of {"prompt": [token ids] or text, "out": tokens}; other fields are its own."""
    try:
        rows = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"workload {path}: cannot be read ({error})") from error
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"workload {path}: expected a non-empty JSON list of requests")
    return [_work(row, f"workload {path}, request {i}") for i, row in enumerate(rows)]


def _work(row: Any, where: str) -> BenchRequest:
    if not isinstance(row, dict) or not {"prompt", "out"} <= set(row):
        raise ConfigError(f'{where}: expected {{"prompt": …, "out": tokens}}')
    prompt, out = row["prompt"], row["out"]
    ids = isinstance(prompt, list) and all(type(t) is int and t >= 0 for t in prompt)
    if not prompt or not (isinstance(prompt, str) or ids):
        raise ConfigError(f"{where}: prompt must be text or a list of token ids")
    if type(out) is not int or out < 1:
        raise ConfigError(f"{where}: out must be a whole number of at least 1, got {out!r}")
    return BenchRequest(prompt, out)


def run_bench(
    config: EngineConfig,
    spec: BenchWork,
    repeats: int = 1,
    crosstalk: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
    beside: Beside | None = None,
    probe: Beside | None = None,
) -> dict[str, Any]:
    """Serve it `repeats` times and report the run of median throughput.

    `progress(done, total)` is called as requests end. With `beside`, a context around a run in
    which something else goes on (the console), runs without and with it take turns, and the
    report says what it cost; with `probe` there is one more run, within that context, of which
    nothing is reported. Raises ConfigError or ModelError before
    anything runs, EngineError when a request fails.
    """
    with Engine(config) as engine:
        model = engine.loaded.spec
        work = make_work(spec, model.vocab, engine.scheduler.max_model_len)
        _refuse_misfits(engine, work)
        warm_up(engine)
        runs, others = _runs(engine, work, repeats, progress, beside)
        cost = cost_of(runs, others) if others else {}
        spans = [span for run in (*runs, *others) for span in run.pop("hosts")]
        runs.sort(key=lambda run: run["throughput"]["output_tok_s"])
        report = {
            "schema": SCHEMA,
            "kind": "bench",
            "model": model.name,
            "config": config.to_dict(),
            "work": _describe(spec, work),
            **runs[len(runs) // 2],
            "repeats": [run["throughput"]["output_tok_s"] for run in runs],
            "host": host_report(spans),
            **cost,
        }
        if probe is not None:
            with probe(engine):
                engine.reset()
                _serve(engine, work, progress)
        if crosstalk:
            report["crosstalk"] = check_crosstalk(engine)
    return report


def _runs(
    engine: Engine,
    work: list[BenchRequest],
    repeats: int,
    progress: Callable[[int, int], None],
    beside: Beside | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Runs alone, and as many with `beside`, in turns: a slow minute meets both."""
    if beside is None:
        return [_believed(engine, work, progress) for _ in range(repeats)], []
    alone: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for pair in range(max(repeats, LEAST_PAIRS)):
        for watched in (False, True) if pair % 2 == 0 else (True, False):
            with beside(engine) if watched else nullcontext() as guest:
                run = _run(engine, work, progress, guest)
            (others if watched else alone).append(run)
    return alone, others


def _believed(
    engine: Engine, work: list[BenchRequest], progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """A run, and once more where the machine took too much from it."""
    return less_disturbed(lambda: _run(engine, work, progress), lambda run: run["hosts"])


def cost_of(alone: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, Any]:
    """What the guest cost, by CPU time: its threads' share of the process's in each run with it,
    and what a token took with it over what it took without, less 1, of each pair.

    Medians. Tokens a second scatter by more than such costs on any machine that is not quiet;
    CPU time does not care who else runs. None where a thread's CPU time cannot be read.
    """
    shares = [run["cpu"]["guest_share"] for run in others]
    told = [share for share in shares if share is not None]
    extra = [b["cpu"]["ms_per_token"] / a["cpu"]["ms_per_token"] - 1
             for a, b in zip(alone, others, strict=True)]  # fmt: skip
    return {
        "console_overhead": statistics.median(told) if told else None,
        "console": {
            "lowest": min(told, default=None),
            "highest": max(told, default=None),
            "cpu_per_token": statistics.median(extra),
            "without_tok_s": [run["throughput"]["output_tok_s"] for run in alone],
            "with_tok_s": [run["throughput"]["output_tok_s"] for run in others],
        },
    }


def _run(
    engine: Engine,
    work: list[BenchRequest],
    progress: Callable[[int, int], None],
    guest: Guest | None = None,
) -> dict[str, Any]:
    """One run between two looks at the machine's limit, and what it measured."""
    engine.reset()
    with witness_of(engine) as beginning:
        before_run = Look.at(engine.loaded.spec)
    before = engine.runner.model.spent_ns()
    cpu, guests = time.process_time(), guest_cpu(guest)
    with witness_of(engine) as witness:
        start = time.monotonic()
        done = _serve(engine, work, progress)
        wall = time.monotonic() - start
    spent, spent_by_guest = time.process_time() - cpu, minus(guest_cpu(guest), guests)
    after = engine.runner.model.spent_ns()
    with witness_of(engine) as end:
        floats, integers = limits(before_run, Look.at(engine.loaded.spec))
    failed = [d for d in done if d.error or len(d.token_ids) == 0]
    if failed:
        raise EngineError(f"{len(failed)} of {len(done)} requests failed: {failed[0].error}")
    held = kv_facts(engine, 0)
    flops = needed_flops(engine, done, work)
    rate = flops / wall
    return {
        "wall_s": wall,
        "throughput": _throughput(done, wall),
        "latency": _latency(done),
        "kv": {name: held[name] for name in KV},
        "machine": {
            **limit_rows("gemm", floats),
            **limit_rows("integer", integers),
            "cores": cores(),
            "device": engine.device,
            "kernels": engine.backend.name,
            "compute": engine.loaded.products.compute,
        },
        "gemm_gflop": flops / 1e9,
        "roofline_fraction": floats.fraction(rate),
        "integer_fraction": integers.fraction(rate) if integers else None,
        "steps": _steps(engine, wall),
        "kernels": _kernels(before, after, wall),
        "memory": {"peak_rss_mib": peak_rss_mib()},
        "cpu": {
            "seconds": spent,
            "ms_per_token": spent * 1e3 / sum(len(d.token_ids) for d in done),
            "guest_share": None if spent_by_guest is None else spent_by_guest / spent,
        },
        "hosts": [beginning.evidence, witness.evidence, end.evidence],
    }


def guest_cpu(guest: Guest | None) -> float | None:
    """CPU seconds of its threads so far."""
    return None if guest is None else guest.cpu_s()


def minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def needed_flops(engine: Engine, done: list[Completion], work: list[BenchRequest]) -> float:
    """GEMM work that the requests themselves need.

    Every token but a request's last passes through the layers once, and the head runs once
    for each sampled token. Recomputation and padding do not count: they are the engine's.
    """
    spec = engine.loaded.spec
    total = 0.0
    for answer, item in zip(done, work, strict=True):
        prompt = answer.prompt_tokens if isinstance(item.prompt, str) else len(item.prompt)
        out = len(answer.token_ids)
        total += (prompt + out - 1) * spec.flops_per_token + out * spec.head_flops
    return total


def _serve(
    engine: Engine, work: list[BenchRequest], progress: Callable[[int, int], None]
) -> list[Completion]:
    streams = [
        engine.submit(
            w.prompt, SamplingParams(max_tokens=w.output, ignore_eos=True), source="bench"
        )
        for w in work
    ]
    done = []
    for stream in streams:
        done.append(completion(stream))
        progress(len(done), len(work))
    return done


def _refuse_misfits(engine: Engine, work: list[BenchRequest]) -> None:
    limit, vocab = engine.scheduler.max_model_len, engine.loaded.spec.vocab
    for i, item in enumerate(work):
        if isinstance(item.prompt, list):
            if len(item.prompt) + item.output > limit:
                raise ConfigError(
                    f"request {i}: {len(item.prompt)} prompt and {item.output} output tokens are "
                    f"more than the model's {limit}"
                )
            if max(item.prompt) >= vocab:
                raise ConfigError(f"request {i}: token {max(item.prompt)} is outside {vocab}")


def _describe(spec: BenchWork, work: list[BenchRequest]) -> dict[str, Any]:
    prompts = [len(w.prompt) for w in work if isinstance(w.prompt, list)]
    return {
        "requests": len(work),
        "prompt_tokens": sum(prompts) if len(prompts) == len(work) else None,
        "output_tokens": sum(w.output for w in work),
        "seed": spec.seed,
        "sigma": None if spec.workload else spec.sigma,
        "workload": spec.workload,
    }


def _throughput(done: list[Completion], wall: float) -> dict[str, float]:
    out = sum(len(d.token_ids) for d in done)
    total = out + sum(d.prompt_tokens for d in done)
    return {
        "output_tok_s": out / wall,
        "total_tok_s": total / wall,
        "requests_s": len(done) / wall,
    }


def _latency(done: list[Completion]) -> dict[str, dict[str, Any]]:
    stamps = [d.stamps for d in done]
    samples: dict[str, list[float | None]] = {
        "ttft_ms": [s.span_ms("arrival", "first_token") for s in stamps],
        "tpot_ms": [s.tpot_ms for s in stamps],
        "itl_ms": [*(gap for s in stamps for gap in s.itl_ms)],
        "e2e_ms": [s.span_ms("arrival", "last_token") for s in stamps],
        "queue_ms": [s.span_ms("queued", "first_scheduled") for s in stamps],
    }
    return {name: latency_block(values) for name, values in samples.items()}


def _steps(engine: Engine, wall: float) -> dict[str, Any]:
    totals = engine.telemetry.totals
    return {
        "count": totals["steps"],
        "mean_ms": wall * 1e3 / max(totals["steps"], 1),
        "preemptions": totals["preemptions"],
        "padding_tokens": totals["padding_tokens"],
        "bound_by": {
            name.removeprefix("bound_"): count
            for name, count in sorted(totals.items())
            if name.startswith("bound_")
        },
        "shares": asdict(engine.telemetry.step_shares(time.monotonic())),
    }


def _kernels(
    before: dict[str, int] | None, after: dict[str, int] | None, wall: float
) -> dict[str, float] | None:
    """Shares of the run's time by kind of kernel; "other" is what none of them accounts for.

    None where the backend keeps no account.
    """
    if before is None or after is None:
        return None
    shares = {part: (after[part] - before[part]) / 1e9 / wall for part in after}
    return {**shares, "other": max(0.0, 1.0 - sum(shares.values()))}


def peak_rss_mib() -> float:
    """Of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20) if sys.platform == "darwin" else peak / (1 << 10)
