"""What a quality check has seen, and the metrics, gates and verdict that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.models import LoadedModel
from playbooks.quality import answers, limits, structured
from playbooks.quality.answers import ModelAnswer
from playbooks.quality.cases import QualityCase, every_nth
from playbooks.quality.controls import Control
from playbooks.quality.limits import ANSWERED, SCORED, LimitResult, judge
from playbooks.quality.metrics import Scores, mean_interval, summarise
from playbooks.quality.passkey import ANSWER_TOKENS, Cell
from playbooks.quality.scoring import Text, apart
from playbooks.quality.structured import StructuredTask
from playbooks.quality.suspects import Suspect

LONG = "long_context"
MIDDLE = 0.5
"""Passkey depth whose texts are scored too."""


@dataclass
class QualityEvidence:
    """Filled from top to bottom as the check goes on."""

    loaded: LoadedModel
    cases: list[QualityCase]
    cells: list[Cell]
    prompts: list[list[int]]
    """Of every case."""
    tasks: list[StructuredTask] = field(default_factory=list)
    rounded: LoadedModel = field(init=False)
    """The candidate's: another one where it multiplies or stores its weights otherwise."""
    base: list[ModelAnswer] = field(default_factory=list)
    """The baseline's answers, one a case."""
    candidate: list[ModelAnswer] = field(default_factory=list)
    alone: list[ModelAnswer] = field(default_factory=list)
    """The baseline's once more, evenly spread over the cases and served one at a time."""
    base_keys: list[ModelAnswer] = field(default_factory=list)
    """The baseline's answers on the passkey grid, one a cell."""
    keys: list[ModelAnswer] = field(default_factory=list)
    base_structured: list[ModelAnswer] = field(default_factory=list)
    """The baseline's answers to the structured tasks."""
    structured: list[ModelAnswer] = field(default_factory=list)
    turn_differs: bool | None = None
    """A second chat turn with reuse is not what a fresh run says; None without any reuse."""
    texts: list[Text] = field(default_factory=list)
    """What is teacher-forced: the cases, then the passkeys of `long_cells`."""
    scores: list[Scores] = field(default_factory=list)
    """One a text."""
    controls: dict[str, Control] = field(default_factory=dict)
    suspects: list[Suspect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rounded = self.loaded

    @property
    def metrics(self) -> dict[str, float | None]:
        low, high = mean_interval([scores.kld for scores in self.scores]) or (None, None)
        kept, floor = answers.kept(self.base, self.candidate), self.floor
        return {
            **summarise(Scores.join(self.scores)),
            "mean_kld_low": low,
            "mean_kld_high": high,
            "passkey_misses": self.passkey_misses,
            "first_divergence": kept / floor if kept is not None and floor else None,
            "kept_prefix": kept,
            "kept_prefix_floor": floor,
            **answers.form(self.base, self.candidate),
            **structured.form(self.tasks, self.base_structured, self.structured),
            "second_turn": None if self.turn_differs is None else float(self.turn_differs),
        }

    @property
    def gates(self) -> list[LimitResult]:
        return judge(self.metrics, SCORED + ANSWERED)

    @property
    def floor(self) -> float | None:
        """The baseline served alone against the baseline served in a batch."""
        return answers.kept(every_nth(self.base, len(self.alone)), self.alone)

    @property
    def passkey_misses(self) -> float | None:
        """More than the baseline misses, in a grid of 20; None where it finds none itself."""
        before, after = sum(self.found(self.base_keys)), sum(self.found(self.keys))
        return max(before - after, 0) * 20 / len(self.cells) if before else None

    def found(self, keys: Sequence[ModelAnswer]) -> list[bool]:
        """For each cell of the grid: did the answer have the passkey?"""
        return [cell.found_in(key.text) for cell, key in zip(self.cells, keys, strict=True)]

    @property
    def long_cells(self) -> list[int]:
        return [i for i, cell in enumerate(self.cells) if cell.depth == MIDDLE]

    @property
    def worst(self) -> list[int]:
        """Texts by mean KL divergence, the worst first."""
        means = [float(scores.kld.mean()) for scores in self.scores]
        return sorted(range(len(means)), key=lambda i: -means[i])

    def make_texts(self) -> list[Text]:
        """Prompts with the baseline's answers; of the passkeys the middle of every length."""
        found = [
            Text(case.id, case.category, prompt + list(answer.token_ids))
            for case, prompt, answer in zip(self.cases, self.prompts, self.base, strict=True)
        ]
        for i in self.long_cells:
            case = passkey_case(self.cells[i])
            prompt = case.tokens(self.loaded.tokenizer)
            found.append(Text(case.id, LONG, prompt + list(self.base_keys[i].token_ids)))
        return apart(found)

    def conclude(self) -> tuple[str, list[str]]:
        """The verdict, and one line for each thing that led to it."""
        reasons = [control_reason(c) for c in self.controls.values() if not c.ok]
        if reasons:
            return limits.INCONCLUSIVE, reasons
        verdict = limits.verdict(self.gates)
        if verdict == limits.PASS:
            return verdict, []
        blamed = [gate for gate in self.gates if gate.verdict == verdict]
        return verdict, [gate.reason for gate in blamed]


def control_reason(control: Control) -> str:
    if control.missed:
        return f"control ({control.note}): injected channels were not named among the suspects"
    return f"control ({control.note}): expected {control.expected}, got {control.verdict}"


def passkey_case(cell: Cell) -> QualityCase:
    name = f"passkey-{cell.length}-{cell.depth:g}"
    return QualityCase(name, LONG, ({"role": "user", "content": cell.prompt},), ANSWER_TOKENS)
