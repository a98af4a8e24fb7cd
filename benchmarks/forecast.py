"""How good the forecast is: `python -m benchmarks.forecast`, about an hour on a quiet machine.

Fits the embedded engine, then runs loads on it that the fit has not seen (other lengths, shared
prefixes, a pool that is too small, a moving cap, bursts) at 0.5 to 1.1 of its capacity, and
simulates each of them from the same arrivals. Writes the report between the marks in
docs/forecast.md. What is done is kept in `--work`, and a second call goes on where the first
ended: `--runs 3` makes three more. `--clock cpu` steps the engine by hand with its thread's CPU
time for a clock (benchmarks/stepped.py): for a machine that others use too.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stepped import SteppedEngine
from engine.config import EngineConfig
from engine.core import Engine
from engine.execution.load import load_model
from engine.models import LoadedModel
from playbooks.forecast.fit import fit_of, run_fit
from playbooks.forecast.fit_file import Fit, load
from playbooks.forecast.fit_report import fit_report
from playbooks.forecast.fitting import predict
from playbooks.forecast.ladder import rungs
from playbooks.forecast.step_log import StepLog
from playbooks.forecast.virtual_load import run_virtual_load
from playbooks.load.arrivals import Closed, Gamma
from playbooks.load.client import LoadResult, run_load
from playbooks.load.mix import parse_mix
from playbooks.load.summary import summarize, window_of
from playbooks.load.targets import EmbeddedTarget
from playbooks.load.workload import LoadSpec
from playbooks.measure.trial import warm_up
from playbooks.measure.witnessed import witness_of
from playbooks.steps.models import FitWork
from repository import ROOT

BASE = EngineConfig(max_batch=32, kv_memory=512 << 20, compute="f32")
LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1)
DRAWS = 24
"""Simulations of each run: their spread is the forecast's interval."""
LEAST_REQUESTS, LEAST_S, CAPACITY_S = 200, 45.0, 40.0
INSIDE = (0.1, 0.9)
BEHIND = 0.05
"""Of the arrivals of a window's second half, more than this left over: the queue grows."""
METRICS = {
    "throughput": ("throughput", "output_tok_s"),
    **{f"{name} {p}": ("latency", f"{name.lower()}_ms", p.lower())
       for name in ("TTFT", "TPOT", "E2E") for p in ("P50", "P90", "P99")},
}  # fmt: skip
GOALS = {"throughput": 0.03, "P50": 0.10, "TTFT P99": 0.20}
BEGIN, END = "<!-- validation: made by benchmarks/forecast.py -->", "<!-- end of validation -->"


@dataclass(frozen=True)
class Scenario:
    name: str
    lengths: str
    settings: dict[str, Any] = field(default_factory=dict)
    cv: float = 1.0
    shared: int = 0

    @property
    def config(self) -> EngineConfig:
        return BASE.with_(**self.settings)

    def spec(self, arrivals: Any, seconds: float, seed: int) -> LoadSpec:
        return LoadSpec(
            arrivals, parse_mix(self.lengths), duration_s=seconds, seed=seed,
            shared_prefix=self.shared, ignore_eos=True,
        )  # fmt: skip


SCENARIOS = (
    Scenario("plain", "lognormal:64,16"),
    Scenario("shared prefix", "lognormal:120,16", shared=96),
    Scenario("preemption", "lognormal:32,40", {"kv_memory": 23 << 20}),
    Scenario("moving cap", "lognormal:48,20", {"dynamic_batch": True, "tpot_objective_ms": 60.0}),
    Scenario("bursts (CV 3)", "lognormal:64,16", cv=3.0),
)


class Work:
    """What is done, as files in a folder."""

    def __init__(self, folder: Path, stepped: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.fitted = fit_stepped if stepped else run_fit
        self.measured = measured_stepped if stepped else measured

    def fit(self, seconds: float) -> Fit:
        path = self.folder / "fit.json"
        if not path.exists():
            print(f"fit: {seconds:.0f} s of load", flush=True)
            fit, report = self.fitted(BASE, FitWork(duration_s=seconds))
            (self.folder / "fit_report.json").write_text(json.dumps(report))
            fit.save(path)
        return load(path)

    def fit_report(self) -> dict[str, Any]:
        return json.loads((self.folder / "fit_report.json").read_text())

    def capacity(self, scenario: Scenario) -> float:
        """Requests/s with a queue that is never empty."""
        path = self.folder / "capacity.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        if scenario.name not in known:
            print(f"capacity of {scenario.name}", flush=True)
            spec = scenario.spec(Closed(2 * BASE.max_batch), CAPACITY_S, seed=77)
            result = self.measured(scenario.config, spec).result
            known[scenario.name] = summarize(result)["throughput"]["requests_s"]
            path.write_text(json.dumps(known))
        return known[scenario.name]

    def runs(self) -> list[dict[str, Any]]:
        path = self.folder / "runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def keep(self, run: dict[str, Any]) -> None:
        with (self.folder / "runs.jsonl").open("a") as file:
            file.write(json.dumps(run) + "\n")


@dataclass
class Measured:
    """A load on the engine itself."""

    result: LoadResult
    log: StepLog
    preemptions: int
    lost: float
    """Share of the machine that others took."""


def measured(config: EngineConfig, spec: LoadSpec) -> Measured:
    log = StepLog()
    with Engine(config) as engine:
        warm_up(engine)
        engine.reset()
        with witness_of(engine) as witness, log.of(engine, 0, 0):
            result = run_load(EmbeddedTarget(engine, "validation"), spec)
        preemptions = engine.telemetry.totals["preemptions"]
    return Measured(result, log, preemptions, witness.evidence.lost or 0.0)


def measured_stepped(config: EngineConfig, spec: LoadSpec) -> Measured:
    stepped, log = SteppedEngine(config, weights()), StepLog()
    with log.of(stepped.engine, 0, 0):
        result = stepped.run(spec)
    return Measured(result, log, stepped.engine.telemetry.totals["preemptions"], 0.0)


@cache
def weights() -> LoadedModel:
    return load_model(BASE)


def fit_stepped(config: EngineConfig, work: FitWork) -> tuple[Fit, dict[str, Any]]:
    """As `forecast fit`, with the stepped engine's clock."""
    start, log, stepped = time.monotonic(), StepLog(), SteppedEngine(config, weights())
    engine = stepped.engine
    for rung in rungs(work, config.max_batch):
        with log.of(engine, rung.number, rung.round):
            stepped.run(rung.spec)
    fit = fit_of(engine, log)
    return fit, fit_report(fit, (), time.monotonic() - start)


def numbers(result: LoadResult) -> dict[str, float | None]:
    summary = summarize(result)
    found = {}
    for name, path in METRICS.items():
        value: Any = summary
        for part in path:
            value = value[part]
        found[name] = value
    return found | {"behind": behind(result)}


def behind(result: LoadResult) -> float:
    """Of the arrivals in the second half of the window, the share by which the backlog grew."""
    window = window_of(result)
    middle = (window.begin + window.end) // 2
    arrived = sum(middle < r.scheduled <= window.end for r in result.records)
    ended = sum(middle < r.ended <= window.end for r in result.records)
    return (arrived - ended) / max(arrived, 1)


def one_run(work: Work, fit: Fit, scenario: Scenario, load_of: float, seed: int) -> dict[str, Any]:
    rate = load_of * work.capacity(scenario)
    seconds = max(LEAST_S, LEAST_REQUESTS / rate)
    spec = scenario.spec(Gamma(rate, scenario.cv), seconds, seed)
    print(f"{scenario.name}, {load_of:.2f} of capacity: {rate:.2f}/s, {seconds:.0f} s", flush=True)
    real = work.measured(scenario.config, spec)
    slower = sum(real.log.ns) / predict(fit.cost, real.log.work).sum()
    draws, spent, virtual = [], 0.0, 0.0
    rng = np.random.default_rng(seed)
    for number in range(DRAWS):
        start = time.process_time()
        speed = math.exp(rng.normal(0.0, fit.drift))
        simulated = run_virtual_load(fit, scenario.config, spec, seed=number, speed=speed)
        spent += time.process_time() - start
        virtual += (simulated.end - simulated.start) / 1e9
        draws.append(numbers(simulated))
    return {
        "scenario": scenario.name, "load": load_of, "rate": rate, "seconds": seconds, "seed": seed,
        "requests": len(real.result.records), "lost": real.lost, "slower": slower,
        "preemptions": real.preemptions, "measured": numbers(real.result), "draws": draws,
        "times_real": virtual / spent,
    }  # fmt: skip


def planned() -> Iterator[tuple[Scenario, float, int]]:
    for i, share in enumerate(LOADS):
        for j, scenario in enumerate(SCENARIOS):
            yield scenario, share, 1000 + 10 * i + j


# --- what the runs say ------------------------------------------------------------------------


def predicted(run: dict[str, Any], name: str) -> tuple[float, float, float] | None:
    """Median, and the ends of the 80 % interval."""
    values = [draw[name] for draw in run["draws"] if draw[name] is not None]
    if not values:
        return None
    low, middle, high = np.quantile(values, (INSIDE[0], 0.5, INSIDE[1]))
    return float(middle), float(low), float(high)


def error(run: dict[str, Any], name: str) -> float | None:
    found, real = predicted(run, name), run["measured"][name]
    return None if found is None or not real else found[0] / real - 1


def metric_rows(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield "| metric | median error | P90 of errors | within the goal | in the 80 % interval |"
    yield "|---|---|---|---|---|"
    for name in METRICS:
        off = [abs(e) for run in runs if (e := error(run, name)) is not None]
        if not off:
            continue
        goal = next((g for key, g in GOALS.items() if name.endswith(key)), None)
        inside = [low <= run["measured"][name] <= high for run in runs
                  if (found := predicted(run, name)) and run["measured"][name] is not None
                  for _, low, high in [found]]  # fmt: skip
        within = (
            "" if goal is None else f"{sum(e <= goal for e in off)} of {len(off)} (± {goal:.0%})"
        )
        yield (f"| {name} | {np.median(off):.1%} | {np.quantile(off, 0.9):.1%} | {within} | "
               f"{sum(inside) / len(inside):.0%} |")  # fmt: skip


def run_rows(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield ("| load | of capacity | requests | tok/s, forecast | TTFT P50 | TTFT P99 | TPOT P50 | "
           "E2E P50 | queue grows, forecast | steps against the fit | × real time |")  # fmt: skip
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for run in sorted(runs, key=lambda run: (run["scenario"], run["load"])):
        cells = [pair(run, name, 1) for name in ("throughput",)]
        cells += [pair(run, name, 0) for name in ("TTFT P50", "TTFT P99", "TPOT P50", "E2E P50")]
        grows = f"{grew(run)}, {forecast_grows(run)}"
        yield (f"| {run['scenario']} | {run['load']:.2f} | {run['requests']} | "
               f"{' | '.join(cells)} | {grows} | {run['slower'] - 1:+.1%} | "
               f"{run['times_real']:,.0f} |")  # fmt: skip


def pair(run: dict[str, Any], name: str, digits: int) -> str:
    found, real = predicted(run, name), run["measured"][name]
    if found is None or real is None:
        return "–"
    return f"{real:,.{digits}f}, {found[0]:,.{digits}f}"


def grew(run: dict[str, Any]) -> str:
    return "yes" if run["measured"]["behind"] > BEHIND else "no"


def forecast_grows(run: dict[str, Any]) -> str:
    return "yes" if np.median([draw["behind"] for draw in run["draws"]]) > BEHIND else "no"


def report(work: Work) -> str:
    runs, fit = work.runs(), work.fit_report()
    wrong = [run for run in runs if grew(run) != forecast_grows(run)]
    outside = [run for run in wrong if not 0.95 <= run["load"] <= 1.05]
    lost = max((run["lost"] for run in runs), default=0.0)
    held_out = fit["held_out"]
    speeds = [run["times_real"] for run in runs]
    return "\n".join([
        f"{len(runs)} runs on {fit['fingerprint']['machine']}, {fit['model']}, KV "
        f"{fit['fingerprint']['format']}; at worst others took {lost:.0%} of the machine. The fit: "
        f"{held_out['steps']:,} steps held out, median error {held_out['p50']:.1%}, all together "
        f"{held_out['total']:+.1%}.", "", *metric_rows(runs), "",
        f"Whether the queue grows was said wrong in {len(wrong)} of {len(runs)} runs, "
        f"{len(outside)} of them outside 0.95 to 1.05 of capacity. Virtual time ran "
        f"{min(speeds):,.0f} to {max(speeds):,.0f} times as fast as real time (median "
        f"{np.median(speeds):,.0f}), telemetry included.", "", *run_rows(runs),
    ])  # fmt: skip


def write(path: Path, text: str) -> None:
    """Between the marks; at the end of a file that has none."""
    before = path.read_text() if path.exists() else "# Forecast\n"
    if BEGIN not in before:
        before = f"{before.rstrip()}\n\n## How good it is\n\n{BEGIN}\n{END}\n"
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    path.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "forecast")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--runs", type=int, default=len(LOADS) * len(SCENARIOS))
    parser.add_argument("--fit-seconds", type=float, default=240.0)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "forecast.md")
    asked = parser.parse_args()
    work = Work(asked.work, asked.clock == "cpu")
    fit = work.fit(asked.fit_seconds)
    done = {(run["scenario"], run["load"]) for run in work.runs()}
    todo = [one for one in planned() if (one[0].name, one[1]) not in done]
    for scenario, share, seed in todo[: asked.runs]:
        work.keep(one_run(work, fit, scenario, share, seed))
    write(asked.out, report(work))
    print(report(work))


if __name__ == "__main__":
    main()
