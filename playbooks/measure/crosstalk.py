"""Cross-talk: does any request's output depend on who shares its batch?

Each client says a word of its own. All are served together, with outputs of different lengths
so that rows leave one by one, and then each alone; the tokens must be the same.
"""

from __future__ import annotations

from typing import Any

from engine.core import Engine, completion
from engine.request import SamplingParams

MARKS = (
    "amber", "basil", "cobalt", "dahlia", "ember", "fjord", "garnet", "hazel",
    "indigo", "juniper", "kelp", "lilac", "maple", "nectar", "ochre", "pepper",
)  # fmt: skip


def check_crosstalk(engine: Engine) -> dict[str, Any]:
    """How many of 16 marked requests came out differently, and how many with another's mark."""
    work = [
        (mark, [{"role": "user", "content": marked_prompt(mark)}], _params(8 + 2 * i))
        for i, mark in enumerate(MARKS)
    ]
    streams = [engine.submit(chat, params, source="bench") for _, chat, params in work]
    together = [completion(stream) for stream in streams]
    alone = [completion(engine.submit(chat, params, source="bench")) for _, chat, params in work]
    differing, mixed = [], []
    for (mark, _, _), shared, solo in zip(work, together, alone, strict=True):
        if shared.token_ids != solo.token_ids:
            differing.append({"client": mark, "together": shared.text, "alone": solo.text})
        if others := foreign_marks(mark, shared.text, solo.text):
            mixed.append({"client": mark, "text": shared.text, "marks_of": others})
    return {
        "requests": len(work),
        "differing": len(differing),
        "mixed": len(mixed),
        "examples": (mixed + differing)[:4],
    }


def foreign_marks(mark: str, together: str, alone: str) -> list[str]:
    """Other clients' marks in what the client of `mark` is told together, and not alone."""
    return [m for m in MARKS if m != mark and m in together and m not in alone]


def marked_prompt(mark: str) -> str:
    # not shown
    return f"My word is {mark}. Repeat my word a few times and say what it makes you think of."


def _params(tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, ignore_eos=True)
