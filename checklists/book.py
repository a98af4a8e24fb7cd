"""Reads a checklist, merges automatic and human answers, and says how it stands.

An item is automatic (something that a Snapshot, the settings or the environment shows) or
human. What nobody has answered is `unknown`, and never passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from checklists.checks import Expectation, ItemResult, check_look, parse_expectation
from checklists.tomlfile import STRICT, Location, TomlFile
from engine.errors import ConfigError

FOLDER = Path(__file__).parent
NOT_LISTS = ("troubleshooting",)
KINDS = ("auto", "human")
YES, NO, NOT_APPLICABLE = "yes", "no", "n/a"
ANSWERS = (YES, NO, NOT_APPLICABLE)
Text = Annotated[str, MinLen(1)]
TRIMMED = STRICT | {"str_strip_whitespace": True, "validate_default": True}


@dataclass(frozen=True)
class Item:
    __pydantic_config__ = TRIMMED
    id: Text
    text: Text
    """What is to be so, as a statement."""
    kind: Literal["auto", "human"] = "human"
    owner: Text = ""
    why: Text = ""
    undo: str = ""
    """How to take back what the item asks for."""
    severity: Literal["must", "should"] = "must"
    """must: without it the list fails; should: without it the list warns."""
    look: str | None = None
    """Of an automatic item, where: snapshot.kv.usage, config.kv_format, environment.driver,
    computed.wait_share."""
    expect: str | None = None
    """What is right: "<= 0.8", "== live", "in cpu triton", "known"."""
    fails: str | None = None
    """What is wrong; between the two it warns. None: whatever is not right."""
    when: Literal["load", "idle"] = "load"
    """The Snapshot that it is answered from: under load, or at idle after it."""
    remedy: str = ""
    """What to do when it is not so."""
    command: str = ""
    """How to find out by hand."""

    @property
    def expectation(self) -> Expectation | None:
        return None if self.expect is None else parse_expectation(self.expect)

    @property
    def failure(self) -> Expectation | None:
        return None if self.fails is None else parse_expectation(self.fails)


@dataclass(frozen=True)
class ChecklistFile:
    __pydantic_config__ = STRICT
    schema: Literal[1] = 1
    title: str | None = None
    about: str = ""
    item: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Checklist:
    name: str
    title: str
    about: str
    items: tuple[Item, ...]

    def item(self, name: str) -> Item:
        return next(item for item in self.items if item.id == name)

    def of_kind(self, kind: str) -> list[Item]:
        return [item for item in self.items if item.kind == kind]


@dataclass(frozen=True)
class Answer:
    """A human's."""

    __pydantic_config__ = STRICT
    answer: str
    """yes | no | n/a"""
    by: str | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise ConfigError(f"answer {self.answer!r} is not one of {', '.join(ANSWERS)}")
        if self.answer == NOT_APPLICABLE and not self.note.strip():
            raise ConfigError("answer n/a: say in `note` why it does not apply")


@dataclass(frozen=True)
class AnsweredItem:
    """An item and what came of it."""

    item: Item
    result: ItemResult
    by: str | None = None
    """Who answered; None: the tool, or nobody."""


@dataclass(frozen=True)
class ChecklistResult:
    checklist: Checklist
    lines: tuple[AnsweredItem, ...]

    @property
    def verdict(self) -> str:
        """fail and inconclusive are for items that must be; the others can only warn."""
        must = {line.result.verdict for line in self.lines if line.item.severity == "must"}
        if "fail" in must:
            return "fail"
        if "unknown" in must:
            return "inconclusive"
        every = {line.result.verdict for line in self.lines}
        return "warn" if every - {"pass"} else "pass"

    @property
    def open(self) -> list[AnsweredItem]:
        return [line for line in self.lines if line.result.verdict != "pass"]

    def counts(self) -> dict[str, int]:
        verdicts = [line.result.verdict for line in self.lines]
        return {v: verdicts.count(v) for v in ("pass", "warn", "fail", "unknown")}


# --- answering ------------------------------------------------------------------------------


def merge(
    checklist: Checklist,
    automatic: Mapping[str, ItemResult],
    answers: Mapping[str, Answer],
) -> ChecklistResult:
    """Every item with its result. Raises ConfigError for answers to items that there are not.

    A human may answer an automatic item only where the tool found nothing out.
    """
    known = {item.id for item in checklist.items}
    for name in answers:
        if name not in known:
            raise ConfigError(
                f"answers: {checklist.name} has no item {name!r}; it has {', '.join(sorted(known))}"
            )
    return ChecklistResult(
        checklist, tuple(_line(item, automatic, answers) for item in checklist.items)
    )


def _line(
    item: Item, automatic: Mapping[str, ItemResult], answers: Mapping[str, Answer]
) -> AnsweredItem:
    seen = automatic.get(item.id) if item.kind == "auto" else None
    if seen is not None and seen.verdict != "unknown":
        if item.id in answers:
            raise ConfigError(
                f"answers: {item.id} was found out ({seen.verdict}: {seen.evidence}); a human "
                "answers only what the tool cannot see"
            )
        return AnsweredItem(item, seen)
    given = answers.get(item.id)
    if given is None:
        return AnsweredItem(item, seen or ItemResult("unknown", "nobody has answered"))
    unseen = f"; not seen by the tool: {seen.evidence}" if seen is not None else ""
    verdict, words = _judged(given, item)
    return AnsweredItem(item, ItemResult(verdict, words + unseen), given.by)


def _judged(given: Answer, item: Item) -> tuple[str, str]:
    """The verdict, and what was answered."""
    note = f": {given.note}" if given.note else ""
    if given.answer == NO:
        return "fail" if item.severity == "must" else "warn", f"answered no{note}"
    if given.answer == NOT_APPLICABLE:
        return "pass", f"does not apply{note}"
    return "pass", f"answered yes{note}"


def read_answers(path: Path, by: str | None = None) -> dict[str, Answer]:
    """A TOML file of `item = "yes"`, or `item = { answer = "no", note = "…", by = "…" }`.

    `by` stands where the file names nobody. Raises ConfigError.
    """
    file = TomlFile(path, "answers")
    at: Location = ("answers",) if "answers" in file.data else ()
    table = file.data["answers"] if at else file.data
    if not isinstance(table, dict):
        raise file.wrong(at, "[answers] must be a table")
    for name, given in table.items():
        row = {"answer": given} if isinstance(given, str) else given
        table[name] = {"by": by, **row} if isinstance(row, dict) else row
    return {name: file.read(Answer, (*at, name)) for name in table}


def template(checklist: Checklist) -> str:
    """An answers file for people to fill in; what stays commented out stays unanswered."""
    lines = [f"# Answers to {checklist.name}: {checklist.title}", "", "[answers]"]
    for item in checklist.of_kind("human"):
        lines += [
            "",
            f"# {item.text} ({item.owner})",
            f'# {item.id} = {{ answer = "", note = "" }}',  # not shown
        ]
    return "\n".join(lines) + "\n"


# --- reading --------------------------------------------------------------------------------


def names() -> list[str]:
    """Those that ship."""
    return sorted(p.stem for p in FOLDER.glob("*.toml") if p.stem not in NOT_LISTS)


def load(name: str | Path) -> Checklist:
    """One that ships, by name, or a TOML file. Raises ConfigError."""
    path = FOLDER / f"{name}.toml"
    if str(name) not in names():
        path = Path(name)
        if not path.is_file():
            raise ConfigError(
                f"checklist {str(name)!r}: no such file, and none that ships; those that ship: "
                f"{', '.join(names())}"
            )
    file = TomlFile(path, "checklist")
    found = file.read(ChecklistFile)
    if not found.item:
        raise file.wrong((), "expected [[item]] tables, one at least")
    for i, item in enumerate(found.item):
        _check_item(file, i, item, [other.id for other in found.item[:i]])
    items = tuple(_on_one_line(item) for item in found.item)
    return Checklist(path.stem, found.title or path.stem, " ".join(found.about.split()), items)


def _on_one_line(item: Item) -> Item:
    """Texts that a file breaks over lines."""
    given = ((f.name, getattr(item, f.name)) for f in fields(item))
    texts: dict[str, Any] = {name: " ".join(v.split()) for name, v in given if v is not None}
    return replace(item, **texts)


def _check_item(file: TomlFile, number: int, item: Item, before: Sequence[str]) -> None:
    """What an automatic item looks at must exist, and a human one looks at nothing."""

    def wrong(key: str, what: str) -> ConfigError:
        return file.wrong(("item", number, key), f"{key}: {what}")

    if not re.fullmatch(r"[a-z][a-z0-9_]*", item.id):
        raise wrong("id", f"expected small letters, digits and _, got {item.id!r}")
    if item.id in before:
        raise wrong("id", f"{item.id!r} is there twice")
    given = [key for key in ("look", "expect", "fails") if getattr(item, key) is not None]
    if item.kind == "human":
        if given:
            raise wrong(given[0], "look, expect and fails belong to automatic items")
        return
    if item.look is None:
        raise wrong("look", "an automatic item needs `look`")
    if not item.look.startswith("environment.") and item.expect is None:
        raise wrong("expect", '`expect` is missing, like "<= 0.8"')
    readers = {"look": check_look, "expect": parse_expectation, "fails": parse_expectation}
    for key in given:
        try:
            readers[key](getattr(item, key))
        except ConfigError as error:
            raise wrong(key, str(error)) from None
