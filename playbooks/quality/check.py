"""The quality check: do another cache format or rounded products change what the model says?

The candidate's settings are held against a baseline (KV in fp16, products and weights as the file
has them) on the golden set: teacher-forced on the baseline's own answers, greedily on the prompts,
on structured tasks and on the passkey grid. All of it runs through the engine's own scheduler,
pages and runner. Two controls run every time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.execution.calibration import for_engine
from engine.execution.load import load_model
from engine.execution.products import weights_of
from engine.models import LoadedModel
from playbooks.quality import limits
from playbooks.quality.answers import answer_all, second_turn
from playbooks.quality.arm import QualityArm
from playbooks.quality.cases import QualityCase, every_nth, golden, read_cases
from playbooks.quality.controls import fp16_control, longest, outlier_control, plain_arm
from playbooks.quality.evidence import QualityEvidence, passkey_case
from playbooks.quality.passkey import ANSWER_TOKENS, Cell, grid
from playbooks.quality.report import findings
from playbooks.quality.scoring import score
from playbooks.quality.structured import answer_tasks, structured_tasks
from playbooks.quality.suspects import find_suspects
from playbooks.steps import Progress
from playbooks.steps.models import QualityStep


@dataclass(frozen=True)
class QualitySize:
    """How much of everything a run does; the metrics and limits are the same."""

    golden: int
    """Golden cases, evenly spread."""
    controls: int
    """Of all cases, those that the controls score too."""
    alone: int
    """Of all cases, those that are answered one at a time as well, for the floor."""
    turns: int
    """Of all cases, those that get a second turn."""


FULL = QualitySize(golden=1000, controls=12, alone=16, turns=3)
QUICK = QualitySize(golden=21, controls=7, alone=6, turns=2)
"""A third of the cases and a small passkey grid."""


class QualityProgress:
    """Counts the answers, passkeys and scored texts for a progress bar."""

    def __init__(self, evidence: QualityEvidence, size: QualitySize, progress: Progress) -> None:
        cases, cells, tasks = len(evidence.cases), len(evidence.cells), len(evidence.tasks)
        texts = cases + len(evidence.long_cells)
        some = 2 * min(size.controls, cases) + min(size.alone, cases)
        self._total, self._done = 2 * (cases + cells + tasks) + texts + some, 0
        self._progress = progress

    def tick(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)


def run_quality(
    config: EngineConfig, spec: QualityStep, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Run the check and return its report.

    Raises ConfigError or ModelError before anything runs, EngineError when the engine fails.
    """
    start, size = time.monotonic(), QUICK if spec.size == "quick" else FULL
    baseline = baseline_of(config, spec)
    own = [case for path in spec.cases for case in read_cases(Path(path))]
    if not own and not spec.golden:
        raise ConfigError("quality: no cases; name a file with --cases or use the golden set")
    loaded = load_model(baseline)
    for each in (baseline, config):
        for_engine(each, loaded.spec, loaded.identity)  # refuses now rather than half-way
    evidence = gather(own, spec, size, loaded)
    if weights_of(config) != weights_of(baseline):
        evidence.rounded = load_model(config)
        config = config.with_(compute=evidence.rounded.products.compute)  # what auto came to
    steps = QualityProgress(evidence, size, progress)
    converse(evidence, baseline, config, size, steps)
    measure(evidence, baseline, config, size, steps)
    return findings(evidence) | {
        "format": config.kv_format,
        "candidate": _named(config, baseline),
        "changes": [
            {"setting": name, "baseline": before, "candidate": after}
            for name, before, after in config.changes_from(baseline)
        ],
        "baseline": spec.baseline,
        "quick": spec.size == "quick",
        "config": config.to_dict(),
        "seconds": round(time.monotonic() - start, 1),
    }


def baseline_of(config: EngineConfig, spec: QualityStep) -> EngineConfig:
    """What the candidate is held against: nothing rounded but by the model's file."""
    return config.with_(kv_format=spec.baseline, zero_point=False, compute="f32", weights="file")


def _named(config: EngineConfig, baseline: EngineConfig) -> str:
    """ "int8_channel, compute mixed": the format, and what else is not the baseline's."""
    others = [f"{name} {after}" for name, _, after in config.changes_from(baseline)
              if name != "kv_format"]  # fmt: skip
    return ", ".join([config.kv_format, *others])


def gather(
    own: Sequence[QualityCase], spec: QualityStep, size: QualitySize, loaded: LoadedModel
) -> QualityEvidence:
    """The cases, passkey cells and structured tasks that fit into the model's context."""
    tokenizer, limit = loaded.tokenizer, loaded.spec.max_positions

    def length(case: QualityCase) -> int:
        return len(case.tokens(tokenizer)) + case.max_tokens

    def count(text: str) -> int:
        return len(tokenizer.encode(text, False))

    for case in own:
        if length(case) >= limit:
            raise ConfigError(
                f"case {case.id!r}: {length(case)} tokens with the answer are more than the "
                f"model's {limit}"
            )
    shipped = [case for case in golden() if length(case) < limit] if spec.golden else []
    cases = [*every_nth(shipped, size.golden), *own]
    for name, times in Counter(case.id for case in cases).items():
        if times > 1:
            raise ConfigError(f"cases: id {name!r} is there {times} times; give each its own")
    if not cases:
        raise ConfigError(f"quality: no golden case fits into the model's {limit} tokens")
    cells = grid(count, limit - ANSWER_TOKENS, spec.size == "quick")
    fitting: list[Cell] = [c for c in cells if length(passkey_case(c)) < limit]
    asked = structured_tasks(spec.size == "quick") if spec.golden else []
    tasks = [t for t in asked if len(t.tokens(tokenizer)) + t.max_tokens(tokenizer) < limit]
    prompts = [case.tokens(tokenizer) for case in cases]
    return QualityEvidence(loaded, cases, fitting, prompts, tasks)


def converse(
    evidence: QualityEvidence,
    baseline: EngineConfig,
    config: EngineConfig,
    size: QualitySize,
    steps: QualityProgress,
) -> None:
    """Everything that is answered greedily."""
    loaded, prompts, tick = evidence.loaded, evidence.prompts, steps.tick
    lengths = [case.max_tokens for case in evidence.cases]
    evidence.base = answer_all(baseline, loaded, prompts, lengths, done=tick)
    evidence.candidate = answer_all(config, evidence.rounded, prompts, lengths, done=tick)
    few = every_nth(prompts, size.alone), every_nth(lengths, size.alone)
    evidence.alone = answer_all(baseline, loaded, *few, batch=1, done=tick)
    cells = [passkey_case(cell).tokens(loaded.tokenizer) for cell in evidence.cells]
    short = [ANSWER_TOKENS] * len(cells)
    evidence.base_keys = answer_all(baseline, loaded, cells, short, done=tick)
    evidence.keys = answer_all(config, evidence.rounded, cells, short, done=tick)
    evidence.base_structured = answer_tasks(baseline, loaded, evidence.tasks, tick)
    evidence.structured = answer_tasks(config, evidence.rounded, evidence.tasks, tick)
    few_cases = every_nth(evidence.cases, size.turns)
    evidence.turn_differs = second_turn(config, evidence.rounded, few_cases)


def measure(
    evidence: QualityEvidence,
    baseline: EngineConfig,
    config: EngineConfig,
    size: QualitySize,
    steps: QualityProgress,
) -> None:
    """Everything that is teacher-forced: the cases, the controls, and suspects if need be."""
    loaded = evidence.loaded
    evidence.texts = evidence.make_texts()
    most = longest(evidence.texts)
    base, candidate = QualityArm(baseline, loaded, most), QualityArm(config, evidence.rounded, most)
    evidence.scores = score(base, [candidate], evidence.texts, steps.tick)[0]
    few = every_nth(evidence.texts[: len(evidence.cases)], size.controls)
    evidence.controls = {
        "fp16": fp16_control(base, few, steps.tick),
        "int8_tensor_outliers": outlier_control(baseline, base, few, steps.tick),
    }
    if limits.verdict(evidence.gates) in (limits.FAIL, limits.WARN):
        plain = plain_arm(baseline, loaded, most)
        worst = evidence.texts[evidence.worst[0]]
        evidence.suspects = find_suspects(candidate, plain, worst.tokens)
