"""A quick look at what the model says: KV format against fp16 on one text, and cross-talk.

Seconds instead of minutes. It finds a format that destroys keys and rows that are mixed up; the
full `evewatch quality` has to prove that a format is good.
"""

from __future__ import annotations

from typing import Any

from engine.core import Engine, completion
from engine.request import SamplingParams
from playbooks.checkup.site import Site
from playbooks.measure.calibrate import long_text
from playbooks.measure.crosstalk import MARKS, marked_prompt
from playbooks.quality import limits
from playbooks.quality.arm import QualityArm
from playbooks.quality.controls import plain_arm
from playbooks.quality.metrics import Scores, summarise
from playbooks.quality.scoring import Text, score
from playbooks.quality.suspects import Suspect, find_suspects
from playbooks.steps import Progress

SCHEMA = 1
TOKENS = 192
SEED = 77
CLIENTS = 6
SUSPECTS = 4


def run_probe(site: Site, progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Raises ConfigError or ModelError, EngineError when the engine fails."""
    progress(0, 3)
    with site.engine() as engine:
        differing, mixed = marked_answers(engine)
        name, identity = engine.loaded.spec.name, engine.loaded.identity
    progress(1, 3)
    scores, clipped, suspects = _score(site)
    progress(3, 3)
    metrics = summarise(scores)
    gates = limits.judge(metrics, limits.SCORED)
    return {
        "schema": SCHEMA,
        "kind": "quality",
        "quick": "probe",
        "verdict": "fail" if mixed else limits.verdict(gates),
        "reasons": [gate.reason for gate in gates if gate.verdict != limits.PASS],
        "model": name,
        "identity": identity,
        "config": site.config.to_dict(),
        "metrics": metrics,
        "clipped": clipped,
        "suspects": [suspect.to_dict() for suspect in suspects],
        "crosstalk": {"requests": CLIENTS, "differing": differing, "mixed": mixed},
    }


def _score(site: Site) -> tuple[Scores, float, list[Suspect]]:
    loaded, config = site.loaded, site.config
    tokens = long_text(loaded.tokenizer, min(TOKENS, loaded.spec.max_positions - 2), SEED)
    text = Text("probe", "probe", tokens)
    plain = plain_arm(config, loaded, len(tokens))
    arm = QualityArm(config, loaded, len(tokens), calibration=site.alteration.calibration)
    scores = Scores.join(score(plain, [arm], [text], lambda: None)[0])
    clipped = arm.cache.saturation_ratio or 0.0
    kld = float(scores.kld.mean()) if len(scores) else 0.0
    worse = kld > limits.SCORED[0].good
    return scores, clipped, find_suspects(arm, plain, tokens)[:SUSPECTS] if worse else []


def marked_answers(engine: Engine) -> tuple[int, int]:
    """Clients that get something else together than alone, and how many of them to believe.

    A single difference can be a tie in the last digit; two, or another's mark, is no chance.
    """
    chat = engine.loaded.tokenizer.has_chat
    marks = MARKS[:CLIENTS]
    work = []
    for i, mark in enumerate(marks):
        text = marked_prompt(mark)
        prompt: Any = [{"role": "user", "content": text}] if chat else text
        work.append((prompt, SamplingParams(max_tokens=6 + 2 * i, ignore_eos=True)))
    streams = [engine.submit(prompt, params, source="check") for prompt, params in work]
    together = [completion(stream) for stream in streams]
    alone = [completion(engine.submit(prompt, params, source="check")) for prompt, params in work]
    differing, strange = 0, 0
    for mark, shared, solo in zip(marks, together, alone, strict=True):
        differing += shared.token_ids != solo.token_ids
        others = (m for m in MARKS if m != mark)
        strange += any(m in shared.text and m not in solo.text for m in others)
    return differing, differing if differing > 1 or strange else 0
