"""A checklist being answered, by hand and by the numbers of now."""

from __future__ import annotations

from dataclasses import dataclass, field

from checklists import book
from checklists.book import Answer, Checklist, ChecklistResult
from checklists.checks import ItemResult


@dataclass
class FilledChecklist:
    """A checklist and what has been answered so far; the app keeps it while the console runs."""

    checklist: Checklist
    automatic: dict[str, ItemResult] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def counted(self) -> dict[str, Answer]:
        """The answers but those to items that the tool has found out itself since."""
        seen = {name for name, result in self.automatic.items() if result.verdict != "unknown"}
        return {name: a for name, a in self.answers.items() if name not in seen}

    @property
    def outcome(self) -> ChecklistResult:
        return book.merge(self.checklist, self.automatic, self.counted)


def all_lists() -> list[FilledChecklist]:
    """Those that ship. Raises ConfigError."""
    return [FilledChecklist(book.load(name)) for name in book.names()]
