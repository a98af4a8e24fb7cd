"""The quality cases asked of a target, greedily: texts, passkeys, JSON, tools, likelihoods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.remote.answer import text_of
from playbooks.outside import likelihoods
from playbooks.outside.answers import AnswerSet, is_url
from playbooks.outside.asking import Answer, Question, Whole, ask, ask_whole
from playbooks.outside.site import UrlSite
from playbooks.outside.traffic import GuardedEndpoint
from playbooks.outside.validity import (
    JSON_CASES,
    TOKENS,
    TOOL_CASES,
    tool_request,
    valid_call,
    valid_json,
)
from playbooks.quality.cases import QualityCase, every_nth, golden, read_cases
from playbooks.quality.passkey import ANSWER_TOKENS, Cell, grid
from playbooks.steps.models import QualityStep

AT_ONCE = 4
GOLDEN_QUICK, FLOOR_QUICK, FLOOR_FULL = 12, 6, 16
"""Cases of a quick run, and those that are asked twice."""
CONTEXT = 1024
"""Tokens of the longest passkey prompt where the target does not say what it takes."""
TOOL_TOKENS = 250
"""Of the list of tools, about: it is in each prompt."""


@dataclass(frozen=True)
class Work:
    """What is asked in one round."""

    cases: Sequence[QualityCase]
    cells: Sequence[Cell] = ()
    likely: Sequence[QualityCase] = ()
    """Of the cases, those whose top log probabilities are asked for."""

    @classmethod
    def of(cls, params: QualityStep, longest: int, floor: bool) -> Work:
        """`floor`: what is asked twice, which is neither every case nor a passkey."""
        quick = params.size != "full"
        cases = _cases(params, quick)
        likely = every_nth(cases, FLOOR_QUICK if quick else FLOOR_FULL)
        if floor:
            return cls(likely, likely=likely)
        return cls(cases, grid(_tokens, longest // 2, quick), likely)

    @property
    def requests(self) -> int:
        """JSON is asked for in a chat, and else without."""
        return (len(self.cases) + len(self.cells) + len(self.likely) + 1 + len(JSON_CASES)
                + len(TOOL_CASES))  # fmt: skip

    @property
    def tokens(self) -> int:
        """About."""
        said = sum(_tokens(_prompt(case)) + case.max_tokens for case in self.cases)
        keys = sum(cell.length + ANSWER_TOKENS for cell in self.cells)
        tops = sum(_tokens(_prompt(case)) + likelihoods.TOKENS for case in self.likely)
        formed = 2 * TOKENS * len(JSON_CASES) + (2 * TOKENS + TOOL_TOKENS) * len(TOOL_CASES)
        return said + keys + tops + formed


def size_of(params: QualityStep) -> tuple[int, int]:
    """Requests and about as many tokens as a step sends, to a second URL too."""
    whole, twice = (Work.of(params, CONTEXT, floor) for floor in (False, True))
    rounds = 1 + (params.against is not None and is_url(params.against))
    return (rounds * whole.requests + twice.requests, rounds * whole.tokens + twice.tokens)


def gather(
    site: UrlSite, endpoint: GuardedEndpoint, params: QualityStep, floor: bool = False
) -> AnswerSet:
    """Ask for all; `floor`: only for what is asked twice. Inside the site's watch. Raises
    EngineError where a case is not answered: such answers cannot be compared."""
    seen = site.newest
    told = seen.engine.max_model_len if seen is not None else None
    work = Work.of(params, min(told or CONTEXT, CONTEXT), floor)
    cases, cells = work.cases, work.cells
    asked = [(_prompt(case), case.max_tokens) for case in cases]
    asked += [(cell.prompt, ANSWER_TOKENS) for cell in cells]
    questions = [Question(prompt, output, may_be_too_long=True) for prompt, output in asked]
    answers = ask(endpoint, questions, AT_ONCE)
    said, keys = answers[: len(cases)], answers[len(cases) :]
    for answer in said:
        if answer.error is not None:
            raise EngineError(f"quality: a prompt got no answer: {answer.error}: {answer.detail}")
    calls, no_calls = _calls(endpoint)
    tops, no_tops = _tops(endpoint, work.likely)
    return AnswerSet(
        site.spec.address.shown,
        endpoint.model,
        {case.id: answer.text for case, answer in zip(cases, said, strict=True)},
        {case.id: _prompt(case) for case in cases},
        {c.id: a.output_tokens < c.max_tokens for c, a in zip(cases, said, strict=True)},
        _found(cells, keys),
        len(cells),
        _formed(endpoint),
        calls,
        tops,
        [why for why in (no_calls, no_tops) if why],
    )


def _found(cells: Sequence[Cell], answers: Sequence[Answer]) -> int | None:
    """None where nothing was asked, or one was refused: prompts may be longer than it takes."""
    if not cells or any(answer.error is not None for answer in answers):
        return None
    return sum(cell.found_in(a.text) for cell, a in zip(cells, answers, strict=True))


def _formed(endpoint: GuardedEndpoint) -> dict[str, bool]:
    """Which answers are the JSON that was asked for. In a chat, where the target has chats: a
    plain prompt is gone on with, not obeyed."""
    chats = [{"messages": [{"role": "user", "content": case.prompt}]} for case in JSON_CASES]
    answers = _unless_refused(endpoint, [chat | {"max_tokens": TOKENS} for chat in chats])
    if answers[0].refused:
        plain = [{"prompt": case.prompt, "max_tokens": TOKENS} for case in JSON_CASES]
        answers = ask_whole(endpoint, plain, AT_ONCE)
    return {case.id: answer.choice is not None
            and valid_json(text_of(dict(answer.choice)), case.schema)
            for case, answer in zip(JSON_CASES, answers, strict=True)}  # fmt: skip


def _calls(endpoint: GuardedEndpoint) -> tuple[dict[str, bool], str | None]:
    """Which calls are valid, or why none are asked for."""
    answers = _unless_refused(endpoint, [tool_request(case) for case in TOOL_CASES])
    if answers[0].refused:
        return {}, f"tool calls are refused: {answers[0].error}: {answers[0].detail}"
    return {case.id: answer.choice is not None and valid_call(answer.choice)
            for case, answer in zip(TOOL_CASES, answers, strict=True)}, None  # fmt: skip


def _tops(
    endpoint: GuardedEndpoint, cases: Sequence[QualityCase]
) -> tuple[dict[str, likelihoods.Tokens], str | None]:
    """By case, or why none are known."""
    if not cases:
        return {}, None
    asked = [likelihoods.request(endpoint.spec, _prompt(case)) for case in cases]
    answers = _unless_refused(endpoint, asked)
    if answers[0].refused:
        return {}, f"log probabilities are refused: {answers[0].error}: {answers[0].detail}"
    found: dict[str, likelihoods.Tokens] = {}
    for case, answer in zip(cases, answers, strict=True):
        if answer.choice is not None and (told := likelihoods.told_by(answer.choice)):
            found[case.id] = told
    return found, None if found else "its answers have no log probabilities"


def _unless_refused(endpoint: GuardedEndpoint, asked: Sequence[Mapping[str, Any]]) -> list[Whole]:
    """The first goes alone: where it is refused the others would be, too, and are not sent."""
    first = ask_whole(endpoint, asked[:1], 1)
    return first if first[0].refused else first + ask_whole(endpoint, asked[1:], AT_ONCE)


def _cases(params: QualityStep, quick: bool) -> list[QualityCase]:
    shipped = golden() if params.golden else []
    if quick:
        shipped = every_nth(shipped, GOLDEN_QUICK)
    return shipped + [case for path in params.cases for case in read_cases(Path(path))]


def _tokens(text: str) -> int:
    """About: a word is a token and a third."""
    return len(text.split()) * 4 // 3


def _prompt(case: QualityCase) -> str:
    return "\n\n".join(message["content"] for message in case.messages) + "\n\n"
