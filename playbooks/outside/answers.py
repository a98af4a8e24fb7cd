"""Answers of a target: asked for, written to a file, and held against others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import ConfigError, EngineError
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import Answer, GuardedEndpoint, Question, ask
from playbooks.quality import answers as model_answers
from playbooks.quality.answers import ModelAnswer
from playbooks.quality.cases import QualityCase, every_nth, golden, read_cases
from playbooks.quality.limits import ANSWERED, FAIL, judge
from playbooks.quality.passkey import ANSWER_TOKENS, Cell, grid
from playbooks.steps.models import QualityStep

SCHEMA = 1
AT_ONCE = 4
GOLDEN_QUICK, FLOOR_QUICK, FLOOR_FULL = 12, 6, 16
"""Cases of a quick run, and those that are asked twice."""
CONTEXT = 1024
"""Tokens of the longest passkey prompt where the target does not say what it takes."""
JSON_TOKENS = 64
JSON_CASES = (
    ("json-order", "Write only JSON with the keys product (text) and quantity (number) for: forty "
     "folding tables."),
    ("json-person", "Write only JSON with the keys name and city for: Renata lives in Oslo."),
    ("json-list", "Write only a JSON list of the three primary colours."),
)  # fmt: skip


@dataclass(frozen=True)
class AnswerSet:
    """What a target said, by the id of the case."""

    url: str
    model: str | None
    texts: Mapping[str, str]
    prompts: Mapping[str, str]
    """So that answers to other prompts are not held against each other."""
    stopped: Mapping[str, bool]
    passkeys: int | None = None
    """Found, of `cells`."""
    cells: int = 0
    json_valid: int | None = None


@dataclass(frozen=True)
class Comparison:
    metrics: Mapping[str, Any]
    floor: float | None
    """Of its own answers, the share that the target repeats."""
    gates: Sequence[Mapping[str, Any]] = field(default_factory=list)
    text: str = ""


def gather(
    site: UrlSite, endpoint: GuardedEndpoint, params: QualityStep, quick: bool, floor: bool = False
) -> AnswerSet:
    """Ask for all; `floor`: only for those that are asked twice. Raises EngineError where one is
    not answered: such answers cannot be compared."""
    cases = _cases(params, quick)
    if floor:
        cases = every_nth(cases, FLOOR_QUICK if quick else FLOOR_FULL)
    cells = [] if floor else _cells(site, quick)
    jsons = () if floor else JSON_CASES
    questions = [*(Question(_prompt(case), case.max_tokens) for case in cases),
                 *(Question(cell.prompt, ANSWER_TOKENS) for cell in cells),
                 *(Question(text, JSON_TOKENS) for _, text in jsons)]  # fmt: skip
    answers = ask(endpoint, questions, AT_ONCE)
    said, rest = answers[: len(cases)], answers[len(cases) :]
    for answer in said:
        if answer.error is not None:
            raise EngineError(f"quality: a prompt got no answer: {answer.error}: {answer.detail}")
    keys, formed = rest[: len(cells)], rest[len(cells) :]
    return AnswerSet(
        site.spec.address.shown,
        endpoint.model,
        {case.id: answer.text for case, answer in zip(cases, said, strict=True)},
        {case.id: _prompt(case) for case in cases},
        {c.id: a.output_tokens < c.max_tokens for c, a in zip(cases, said, strict=True)},
        _count([c.found_in(a.text) for c, a in zip(cells, keys, strict=True)], keys),
        len(cells),
        _count([_is_json(answer.text) for answer in formed], formed),
    )


def _count(good: Sequence[bool], answers: Sequence[Answer]) -> int | None:
    """None where nothing was asked, or one was refused: prompts may be longer than it takes."""
    refused = any(answer.error is not None for answer in answers)
    return None if refused or not answers else sum(good)


def check_files(params: QualityStep) -> None:
    """Raises ConfigError for files that a run would not get on with."""
    if params.against is not None and not is_url(params.against):
        read(Path(params.against))
    if params.record is not None and not Path(params.record).absolute().parent.is_dir():
        raise ConfigError(f"record {params.record}: its folder is not there")


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def size_of(params: QualityStep) -> tuple[int, int]:
    """Requests and about as many tokens as `gather` makes, with the floor."""
    quick = params.size != "full"
    cases = _cases(params, quick)
    twice = every_nth(cases, FLOOR_QUICK if quick else FLOOR_FULL)
    keys = grid(_tokens, CONTEXT // 2, quick)
    asked = sum(_tokens(_prompt(case)) + case.max_tokens for case in (*cases, *twice))
    asked += sum(cell.length + ANSWER_TOKENS for cell in keys) + 2 * JSON_TOKENS * len(JSON_CASES)
    return len(cases) + len(twice) + len(keys) + len(JSON_CASES), asked


def compared(before: AnswerSet | None, now: AnswerSet, again: AnswerSet) -> Comparison:
    """`again` are answers of the same target as `now`: the floor."""
    floor = model_answers.kept(*_pairs(now, again))
    if before is None:
        return Comparison({}, floor, text="no answers of before to hold these against")
    base, other = _pairs(before, now)
    if not base:
        raise ConfigError("quality: the answers recorded earlier are to other prompts; record anew")
    kept = model_answers.kept(base, other)
    found: dict[str, float | None] = dict(model_answers.form(base, other))
    found["first_divergence"] = kept / floor if kept is not None and floor else None
    if before.passkeys is not None and now.passkeys is not None and before.cells == now.cells:
        found["passkey_misses"] = before.passkeys - now.passkeys
    limits = [limit for limit in ANSWERED if limit.metric != "second_turn"]
    results = judge(found, limits)
    lost = 0
    if before.json_valid is not None and now.json_valid is not None:
        lost = before.json_valid - now.json_valid
    failed = [r.limit.title for r in results if r.verdict == FAIL]
    failed += ["fewer answers are valid JSON"] if lost > 1 else []
    gates = [{"metric": r.limit.metric, "value": r.value, "verdict": r.verdict} for r in results]
    metrics = {"failed_limits": len(failed), "passkey_misses": found.get("passkey_misses")}
    share = "–" if kept is None else f"{kept:.0%}"
    text = f"{share} of the answers kept (of itself: {floor or 0.0:.0%})"
    return Comparison(metrics, floor, gates, f"{text}; {', '.join(failed)}" if failed else text)


def write(answers: AnswerSet, path: Path) -> None:
    """Raises ConfigError where it cannot be written."""
    text = json.dumps({"schema": SCHEMA, "kind": "answers"} | asdict(answers), ensure_ascii=False,
                      indent=1)  # fmt: skip
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"record {path}: cannot be written ({error.strerror})") from error


def read(path: Path) -> AnswerSet:
    """Of a file that `write` made. Raises ConfigError for any other."""
    try:
        row = json.loads(path.read_text("utf-8"))
        if row.pop("kind") != "answers" or row.pop("schema") != SCHEMA:
            raise ValueError("another kind of file")
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


def _cases(params: QualityStep, quick: bool) -> list[QualityCase]:
    shipped = golden() if params.golden else []
    if quick:
        shipped = every_nth(shipped, GOLDEN_QUICK)
    return shipped + [case for path in params.cases for case in read_cases(Path(path))]


def _cells(site: UrlSite, quick: bool) -> list[Cell]:
    seen = site.newest
    told = seen.engine.max_model_len if seen is not None else None
    return grid(_tokens, min(told or CONTEXT, CONTEXT) // 2, quick)


def _tokens(text: str) -> int:
    """About: a word is a token and a third."""
    return len(text.split()) * 4 // 3


def _prompt(case: QualityCase) -> str:
    return "\n\n".join(message["content"] for message in case.messages) + "\n\n"


def _is_json(text: str) -> bool:
    """The answer, or what stands in it between fences or brackets."""
    body = text.strip().removeprefix("```json").removeprefix("```").partition("```")[0].strip()
    try:
        json.loads(body)
    except ValueError:
        return False
    return True
