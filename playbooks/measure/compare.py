"""Compare: the same requests through engines that differ by one setting.

Arms take turns (A B A B …), so that a machine that slows down slows both. A repeat has one
seed for all arms: the requests, their order and their arrival times are the same in each, and
effects are of pairs. What an interval does not separate from zero is called inconclusive.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from engine.config import EngineConfig
from engine.core import Engine
from engine.execution import load as setup
from engine.execution.load import load_model
from engine.execution.products import weights_of
from engine.models import LoadedModel
from playbooks.load.arrivals import Closed, Gamma
from playbooks.load.client import LoadProgress
from playbooks.measure.arm_metrics import METRICS, Arm, effects_between, judge_goal
from playbooks.measure.experiment import Experiment, ExperimentSize
from playbooks.measure.trial import Trial, run_trial, warm_up
from playbooks.measure.witnessed import host_report, less_disturbed
from playbooks.reports import results
from playbooks.steps import Progress
from playbooks.steps.models import CompareStep, QualityStep

SCHEMA = 1
DEFAULTS = CompareStep()
JudgeQuality = Callable[[EngineConfig], dict[str, Any]]
"""Settings of an arm to the report of its quality check."""


def run_compare(
    experiment: Experiment,
    config: EngineConfig,
    options: CompareStep = DEFAULTS,
    progress: Progress = lambda *_: None,
    loaded: LoadedModel | None = None,
    quality: JudgeQuality | None = None,
) -> dict[str, Any]:
    """Run every arm and say what the differences prove.

    `config` has what all arms share (model, device, threads); the experiment's base is over it.
    Raises ConfigError or ModelError before anything runs, EngineError when a request fails.
    """
    start = time.monotonic()
    if not options.allow_many:
        experiment.check_single_changes()
    loaded = loaded or load_model(_first_config(experiment, config))
    size = size_for(experiment, options, config)
    arms = make_arms(experiment, config, loaded, size)
    run = _ComparisonRun(experiment, arms, loaded, size, options, progress)
    run.check_arms()
    run.all_repeats()
    if options.quality:
        run.judge_quality(quality or kept_quality)
    return _report(run, start)


def _first_config(experiment: Experiment, config: EngineConfig) -> EngineConfig:
    return EngineConfig.from_dict(config.to_dict() | experiment.settings(0), "first arm")


def size_for(experiment: Experiment, options: CompareStep, config: EngineConfig) -> ExperimentSize:
    size = experiment.quick if options.quick else experiment.size
    if experiment.gpu_scale is not None and not options.quick and _on_gpu(config):
        size = replace(size, scale=experiment.gpu_scale)
    changes = {"scale": options.scale, "repeats": options.repeats}
    size = replace(size, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
    replace(experiment, size=size)  # refuses what is out of range
    return size


def _on_gpu(config: EngineConfig) -> bool:
    import torch

    return config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())


def make_arms(
    experiment: Experiment, config: EngineConfig, loaded: LoadedModel, size: ExperimentSize
) -> list[Arm]:
    """Settings of every arm, with the same KV memory."""
    spec, common = loaded.spec, {}
    if experiment.kv_rows is not None:
        longest = min(experiment.longest(size), spec.max_positions)
        a_token = 2 * spec.layers * spec.kv_heads * spec.head_dim * 2
        common = {
            "max_model_len": longest,
            "kv_memory": int(experiment.kv_rows * longest) * a_token,
        }
    shared = config.to_dict() | common
    return [
        Arm(arm, EngineConfig.from_dict(shared | experiment.settings(i), f"arm {arm.name!r}"))
        for i, arm in enumerate(experiment.arms)
    ]


class _ComparisonRun:
    """The trials of an experiment, in their order."""

    def __init__(
        self,
        experiment: Experiment,
        arms: list[Arm],
        loaded: LoadedModel,
        size: ExperimentSize,
        options: CompareStep,
        progress: Progress,
    ) -> None:
        self.experiment, self.arms, self.loaded, self.size = experiment, arms, loaded, size
        self._models = {weights_of(arms[0].config): loaded}
        self.options = options
        self.seed = experiment.seed if options.seed is None else options.seed
        self.rate = experiment.rate if options.rate is None else options.rate
        self._has_open_loop = self.rate is not None or experiment.rate_of_first is not None
        self._progress, self._done = progress, 0

    def check_arms(self) -> None:
        """Lay out every arm's cache once: what does not fit is refused now, not half-way. From
        here on an arm's `compute` is what `auto` came to."""
        for arm in self.arms:
            loaded = self._model(arm.config)
            arm.config = arm.config.with_(compute=loaded.products.compute)
            self._models.setdefault(weights_of(arm.config), loaded)
            setup.build(arm.config, loaded)

    def judge_quality(self, judge: JudgeQuality) -> None:
        """What computes as it should is what the others are held against; each is judged once."""
        verdicts: dict[tuple[str, ...], str] = {("fp16", "f32", "file"): "reference"}
        for arm in self.arms:
            config = arm.config
            rounding = (config.kv_format, config.compute, config.weights)
            if rounding not in verdicts:
                verdicts[rounding] = judge(config)["verdict"]
            arm.quality = verdicts[rounding]

    def all_repeats(self) -> None:
        """Closed batches of all arms, then the open loops of all arms, and again."""
        for repeat in range(self.size.repeats):
            for arm in self.arms:
                arm.batches.append(self._closed(arm, repeat))
            if self._has_open_loop:
                rate = self._find_rate()
                for arm in self.arms:
                    arm.open_loops.append(self._open(arm, repeat, rate))

    def _find_rate(self) -> float:
        """Fixed once for all: as said, or a share of what the first arm did first."""
        if self.rate is None:
            first, share = self.arms[0].batches[0], self.experiment.rate_of_first
            assert share is not None
            self.rate = share * len(first.records) / first.wall_s
        return self.rate

    def _closed(self, arm: Arm, repeat: int) -> Trial:
        return self._trial(arm, Closed(self.size.batch_requests), self.size.batch_requests, repeat)

    def _open(self, arm: Arm, repeat: int, rate: float) -> Trial:
        return self._trial(arm, Gamma(rate), self.size.rate_requests, repeat)

    def _trial(self, arm: Arm, arrivals: Closed | Gamma, count: int, repeat: int) -> Trial:
        done, total = self._done, self._total

        def show(progress: LoadProgress) -> None:
            self._progress(done + progress.done, total)

        mix, seed = self.experiment.mix(self.size, count), self.seed + repeat
        with Engine(arm.config, self._model(arm.config)) as engine:
            warm_up(engine)
            trial = less_disturbed(
                lambda: run_trial(engine, arrivals, mix, count, seed, on_progress=show),
                lambda trial: [trial.host],
            )
        self._done += count
        self._progress(self._done, total)
        return trial

    def _model(self, config: EngineConfig) -> LoadedModel:
        """Arms share the weights unless it is the weights, or who packs them, that differs."""
        key = weights_of(config)
        if key not in self._models:
            self._models[key] = load_model(config)
        return self._models[key]

    @property
    def _total(self) -> int:
        size = self.size
        a_repeat = size.batch_requests + (size.rate_requests if self._has_open_loop else 0)
        return size.repeats * len(self.arms) * a_repeat


def kept_quality(config: EngineConfig) -> dict[str, Any]:
    """The kept report on this model and format against fp16, or a quick run of it.

    A report that decides nothing is not kept to, nor one on a calibration file of the user's:
    the file may have changed.
    """
    from engine.models import describe, resolve
    from playbooks.quality.check import run_quality

    identity = describe(resolve(config.model)).identity
    same = (
        "kv_format", "page_tokens", "outlier_channels", "zero_point", "calibration", "device",
        "compute", "outlier_columns", "weights",
    )  # fmt: skip
    wanted = {name: config.to_dict()[name] for name in same}
    for report in results.saved("quality") if config.calibration is None else ():
        found = {name: report.get("config", {}).get(name) for name in same}
        decided = report.get("verdict") != "inconclusive" and report.get("baseline") == "fp16"
        if decided and report.get("identity") == identity and found == wanted:
            return report
    report = run_quality(config, QualityStep(size="quick"))
    results.save(report)
    return report


def _report(run: _ComparisonRun, start: float) -> dict[str, Any]:
    experiment, arms, seed = run.experiment, run.arms, run.seed
    rivals = [(experiment.rival(i), i) for i in range(1, len(arms))]
    effects = [row for a, b in rivals for row in effects_between(arms[a], arms[b], seed)]
    overall = effects_between(arms[0], arms[-1], seed)
    whole = {row["metric"]: row for row in overall}
    goals = [judge_goal(goal, whole[goal.metric]) for goal in experiment.goals]
    return {
        "schema": SCHEMA,
        "kind": "compare",
        "name": experiment.name,
        "title": experiment.title,
        "regime": experiment.regime,
        "model": run.loaded.spec.name,
        "identity": run.loaded.identity,
        "quick": run.options.quick,
        "scale": run.size.scale,
        "seed": seed,
        "repeats": run.size.repeats,
        "work": {
            "batch_requests": run.size.batch_requests,
            "rate_requests": run.size.rate_requests if run.rate is not None else None,
            "rate_requests_s": run.rate,
            "lengths": experiment.mix(run.size, run.size.batch_requests).label,
        },
        "arms": [arm.to_dict() for arm in arms],
        "effects": effects,
        "overall": overall if len(arms) > 2 else [],
        "goals": goals,
        "findings": findings(run, effects),
        "verdict": _verdict(goals),
        "metrics": {metric.name: metric.title for metric in METRICS},
        "host": host_report([t.host for arm in arms for t in (*arm.batches, *arm.open_loops)]),
        "environment": environment(arms[0].config),
        "seconds": round(time.monotonic() - start, 1),
    }


def _verdict(goals: list[dict[str, Any]]) -> str:
    """Without goals a comparison is only told, and passes."""
    outcomes = {goal["verdict"] for goal in goals}
    return next((v for v in ("fail", "inconclusive") if v in outcomes), "pass")


def findings(run: _ComparisonRun, effects: list[dict[str, Any]]) -> list[str]:
    """A sentence an arm: what changed, and what held it back."""
    sentences = []
    for i, arm in enumerate(run.arms):
        said = []
        for row in effects if i else ():
            short = row["metric"] in ("throughput", "p99_e2e", "p50_e2e")
            if row["to"] == arm.spec.name and short and row["change"] is not None:
                said.append(f"{row['title']} {row['change']:+.0%} ({row['verdict']})")
        gained = f"{', '.join(said)}; " if said else ""
        sentences.append(f"{arm.spec.name}: {gained}bound by {arm.bound_by}: {arm.typical_bound}")
    return sentences


def environment(config: EngineConfig) -> dict[str, Any]:
    import torch

    return {
        "evewatch": version("evewatch"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "system": platform.system(),
        "threads": torch.get_num_threads(),
        "device": config.device,
    }
