"""What a target said to the quality cases: kept in a file, and held against what it said before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import write_private
from playbooks.outside import likelihoods
from playbooks.quality import answers as model_answers
from playbooks.quality.answers import ModelAnswer
from playbooks.quality.limits import ANSWERED, FAIL, Limit, judge
from playbooks.steps.models import QualityStep

SCHEMA = 2
OUTSIDE = (
    *(limit for limit in ANSWERED if limit.metric not in ("second_turn", "structure_p")),
    Limit("json_lost", "fewer answers are valid JSON", 1, 2, required=False),
    Limit("calls_lost", "fewer tool calls are valid", 1, 2, required=False),
    Limit("top_kld", "KL divergence of the top log probabilities", 0.002, 0.01, required=False),
)
FLOOR_TIMES = 3.0
"""So many times the target's divergence from itself is no change."""


@dataclass(frozen=True)
class AnswerSet:
    """By the id of the case."""

    url: str
    model: str | None
    texts: Mapping[str, str]
    prompts: Mapping[str, str]
    """So that answers to other prompts are not held against each other."""
    stopped: Mapping[str, bool]
    passkeys: int | None = None
    """Found, of `cells`."""
    cells: int = 0
    json_valid: Mapping[str, bool] = field(default_factory=dict)
    calls_valid: Mapping[str, bool] = field(default_factory=dict)
    """Empty: the target refuses tools."""
    tops: Mapping[str, likelihoods.Tokens] = field(default_factory=dict)
    """Top log probabilities of the first tokens; empty: not told."""
    untold: Sequence[str] = ()
    """What it did not tell, and why, in words."""


@dataclass(frozen=True)
class Comparison:
    metrics: Mapping[str, Any]
    floor: float | None
    """Of its own answers, the share that the target repeats."""
    gates: Sequence[Mapping[str, Any]] = field(default_factory=list)
    text: str = ""


def check_files(params: QualityStep) -> None:
    """Raises ConfigError for files that a run would not get on with."""
    if params.against is not None and not is_url(params.against):
        read(Path(params.against))
    if params.record is not None and not Path(params.record).absolute().parent.is_dir():
        raise ConfigError(f"record {params.record}: its folder is not there")


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def compared(before: AnswerSet | None, now: AnswerSet, again: AnswerSet) -> Comparison:
    """`again` are answers of the same target as `now`: the floor."""
    floor = model_answers.kept(*_pairs(now, again))
    shares = {"json_valid": _share(now.json_valid), "calls_valid": _share(now.calls_valid)}
    if before is None:
        return Comparison(shares, floor, text="no answers of before to hold these against")
    base, other = _pairs(before, now)
    if not base:
        raise ConfigError("quality: the answers recorded earlier are to other prompts; record anew")
    kept = model_answers.kept(base, other)
    found: dict[str, float | None] = dict(model_answers.form(base, other))
    found["first_divergence"] = kept / floor if kept is not None and floor else None
    if before.passkeys is not None and now.passkeys is not None and before.cells == now.cells:
        found["passkey_misses"] = before.passkeys - now.passkeys
    found["json_lost"] = _lost(before.json_valid, now.json_valid, again.json_valid)
    found["calls_lost"] = _lost(before.calls_valid, now.calls_valid, again.calls_valid)
    found["top_kld"] = _beyond_floor(before, now, again)
    results = judge(found, OUTSIDE)
    failed = [r.limit.title for r in results if r.verdict == FAIL]
    gates = [{"metric": r.limit.metric, "value": r.value, "verdict": r.verdict} for r in results]
    metrics = {
        "failed_limits": len(failed),
        "passkey_misses": found.get("passkey_misses"),
        "top_kld": found["top_kld"],
    }
    share = "–" if kept is None else f"{kept:.0%}"
    text = f"{share} of the answers kept (of itself: {floor or 0.0:.0%})"
    text = f"{text}; {', '.join(failed)}" if failed else text
    return Comparison(shares | metrics, floor, gates, text)


def _share(valid: Mapping[str, bool]) -> float | None:
    return sum(valid.values()) / len(valid) if valid else None


def _lost(
    before: Mapping[str, bool], now: Mapping[str, bool], again: Mapping[str, bool]
) -> int | None:
    """Cases that were good and are not any more, whichever of two times: a target that has come to
    refuse them has lost them all. None where nothing was good or known before."""
    good = [case for case, valid in before.items() if valid]
    return sum(not (now.get(c) or again.get(c)) for c in good) if before else None


def _beyond_floor(before: AnswerSet, now: AnswerSet, again: AnswerSet) -> float | None:
    """How far the top log probabilities moved, beyond what the target moves by itself."""
    moved = likelihoods.divergence(before.tops, now.tops)
    own = likelihoods.divergence(now.tops, again.tops)
    return None if moved is None else max(moved - FLOOR_TIMES * (own or 0.0), 0.0)


def write(answers: AnswerSet, path: Path) -> None:
    """Raises ConfigError where it cannot be written."""
    text = json.dumps({"schema": SCHEMA, "kind": "answers"} | asdict(answers), ensure_ascii=False,
                      indent=1)  # fmt: skip
    try:
        write_private(path, text + "\n")
    except OSError as error:
        raise ConfigError(f"record {path}: cannot be written ({error.strerror})") from error


def read(path: Path) -> AnswerSet:
    """Of a file that `write` made. Raises ConfigError for any other."""
    try:
        row = json.loads(path.read_text("utf-8"))
        if row.pop("kind") != "answers" or (schema := row.pop("schema")) not in (1, SCHEMA):
            raise ValueError("another kind of file")
        if schema == 1:  # had a count, and no cases
            row.pop("json_valid", None)
        return AnswerSet(**row)
    except OSError as error:
        raise ConfigError(f"against {path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ConfigError(f"against {path}: no file that quality --record wrote") from error


def _pairs(a: AnswerSet, b: AnswerSet) -> tuple[list[ModelAnswer], list[ModelAnswer]]:
    """Their answers to the prompts that both were asked; words stand for tokens."""
    shared = [i for i in a.texts if i in b.texts and a.prompts.get(i) == b.prompts.get(i)]
    ids: dict[str, int] = {}

    def answer(one: AnswerSet, case: str) -> ModelAnswer:
        words = one.texts[case].split() or [""]
        numbers = tuple(ids.setdefault(word, len(ids)) for word in words)
        return ModelAnswer(numbers, one.texts[case], one.stopped.get(case, False))

    return [answer(a, i) for i in shared], [answer(b, i) for i in shared]
