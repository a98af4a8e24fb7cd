"""Does the candidate say what the baseline says, and to nobody else?

Before any traffic: golden prompts, greedily on both, and where both run here the distance of
their predictions on the baseline's own answers. Amid traffic: marked prompts, whose answers
must be what the same side said when it was alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.models import LoadedModel
from playbooks.canary.evidence import CanaryQuality, Probes
from playbooks.canary.fair_scheduler import FairScheduler
from playbooks.canary.router import BASELINE, CANDIDATE, SIDES
from playbooks.canary.sides import Ask, EmbeddedSide, Said, Side
from playbooks.measure.crosstalk import MARKS, foreign_marks, marked_prompt
from playbooks.quality import answers, limits
from playbooks.quality.answers import ModelAnswer
from playbooks.quality.arm import QualityArm
from playbooks.quality.cases import QualityCase, every_nth, golden
from playbooks.quality.controls import longest, plain_arm
from playbooks.quality.limits import ANSWERED, SCORED, LimitResult, judge
from playbooks.quality.metrics import Scores, summarise
from playbooks.quality.scoring import Text, score
from playbooks.quality.suspects import find_suspects

CASES = 12
"""Golden prompts, evenly spread over the categories."""
MARKED = 8
"""Marked prompts a look; their answers have different lengths, so that rows leave one by one."""
FORM = tuple(
    limit for limit in ANSWERED
    if limit.metric in ("length_change", "repetition_p", "early_end_p", "replacement_up")
)  # fmt: skip


def marked_asks() -> list[Ask]:
    return [
        Ask(({"role": "user", "content": marked_prompt(mark)},), 8 + 2 * i, ignore_eos=True)
        for i, mark in enumerate(MARKS[:MARKED])
    ]


class CrosstalkProbe:
    """Knows what each side says to the marked prompts when it is alone."""

    def __init__(self, sides: dict[str, Side]) -> None:
        self._sides, self._asks = sides, marked_asks()
        self._alone: dict[str, list[Said | None]] = {}

    async def alone(self) -> None:
        """Before any traffic."""
        for name, side in self._sides.items():
            self._alone[name] = await side.answers(self._asks, together=False)

    async def amid_traffic(self, found: dict[str, Probes]) -> None:
        """Ask once more, all together and among what is being served."""
        for name in SIDES:
            now = await self._sides[name].answers(self._asks, together=True)
            compare_marked(found[name], self._alone[name], now)


def compare_marked(
    found: Probes, alone: Sequence[Said | None], company: Sequence[Said | None]
) -> None:
    """Count into `found` what changed; a prompt that failed in either run counts as failed."""
    for mark, solo, shared in zip(MARKS, alone, company, strict=False):
        if solo is None or shared is None:
            found.failed += 1
            continue
        found.asked += 1
        others = foreign_marks(mark, shared.text, solo.text)
        found.mixed += bool(others)
        differs = solo.token_ids != shared.token_ids
        found.differing += differs
        if differs or others:
            found.examples.append({"client": mark, "alone": solo.text, "in_company": shared.text})


# --- before any traffic -------------------------------------------------------------------


@dataclass(frozen=True)
class _Judged:
    gates: list[LimitResult]
    suspects: list[dict[str, Any]]
    note: str | None


async def check_quality(sides: dict[str, Side], turns: FairScheduler | None) -> CanaryQuality:
    """`turns`: where both sides are engines in this process."""
    base, candidate = sides[BASELINE], sides[CANDIDATE]
    cases = _cases(base)
    asks = [Ask(case.messages, case.max_tokens) for case in cases]
    said = {name: await side.answers(asks, together=True) for name, side in sides.items()}
    pairs = [
        (case, a, b)
        for case, a, b in zip(cases, said[BASELINE], said[CANDIDATE], strict=True)
        if a is not None
    ]
    if not pairs:
        why = "answered no golden prompt" if cases else "takes no golden prompt: all are too long"
        return CanaryQuality(limits.INCONCLUSIVE, [f"the baseline {why}"])
    silent = sum(b is None for _, _, b in pairs)
    if silent:
        reason = f"{silent} of {len(pairs)} golden prompts were not answered"
        return CanaryQuality(limits.FAIL, [reason])
    formed = answers.form(_answers([a for _, a, _ in pairs]), _answers([b for *_, b in pairs]))
    gates, judged = judge(formed, FORM), _Judged([], [], "no distributions: not embedded")
    if turns is not None:
        assert isinstance(base, EmbeddedSide) and isinstance(candidate, EmbeddedSide)
        texts = _texts(pairs, base.loaded)
        judged = await turns.call(lambda: _distance(base, candidate, texts))
    gates += judged.gates
    return CanaryQuality(
        limits.verdict(gates),
        [gate.reason for gate in gates if gate.verdict in (limits.FAIL, limits.INCONCLUSIVE)],
        [gate.to_dict() for gate in gates],
        judged.suspects,
        judged.note,
    )


def _cases(base: Side) -> list[QualityCase]:
    """Of the golden set, those that fit."""
    cases = golden()
    if isinstance(base, EmbeddedSide):
        tokenizer, limit = base.loaded.tokenizer, base.target.limit or 0
        cases = [c for c in cases if len(c.tokens(tokenizer)) + c.max_tokens < limit]
    return every_nth(cases, CASES)


def _answers(said: Sequence[Said | None]) -> list[ModelAnswer]:
    return [ModelAnswer(s.token_ids, s.text, s.stopped) for s in said if s is not None]


def _texts(
    pairs: Sequence[tuple[QualityCase, Said | None, Said | None]], loaded: LoadedModel
) -> list[Text]:
    """The prompts with the baseline's answers."""
    return [
        Text(case.id, case.category, case.tokens(loaded.tokenizer) + list(a.token_ids))
        for case, a, _ in pairs
        if a is not None
    ]


def _distance(base: EmbeddedSide, candidate: EmbeddedSide, texts: list[Text]) -> _Judged:
    """How far the candidate's predictions are from the baseline's, and whom to suspect."""
    if base.loaded.identity != candidate.loaded.identity:
        return _Judged([], [], "no distributions: the models differ")
    most = longest(texts)
    arms = [QualityArm(side.engine.config, side.loaded, most) for side in (base, candidate)]
    scores = score(arms[0], arms[1:], texts, lambda: None)[0]
    gates = judge(summarise(Scores.join(scores)), SCORED)
    if limits.verdict(gates) not in (limits.FAIL, limits.WARN):
        return _Judged(gates, [], None)
    worst = max(zip(texts, scores, strict=True), key=lambda pair: float(pair[1].kld.mean()))[0]
    plain = plain_arm(base.engine.config, base.loaded, most)
    suspects = find_suspects(arms[1], plain, worst.tokens)
    return _Judged(gates, [suspect.to_dict() for suspect in suspects], None)
