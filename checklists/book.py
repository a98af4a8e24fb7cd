"""Reads a checklist, merges automatic and human answers, and says how it stands.

An item is automatic (something that a Snapshot, the settings or the environment shows) or
human. What nobody has answered is `unknown`, and never passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tomli

from checklists.checks import Expectation, ItemResult, check_look, parse_expectation
from engine.errors import ConfigError

FOLDER = Path(__file__).parent
NOT_LISTS = ("troubleshooting",)
SCHEMA = 1
KINDS = ("auto", "human")
SEVERITIES = ("must", "should")
WHENS = ("load", "idle")
YES, NO, NOT_APPLICABLE = "yes", "no", "n/a"
ANSWERS = (YES, NO, NOT_APPLICABLE)


@dataclass(frozen=True)
class Item:
    id: str
    text: str
    """What is to be so, as a statement."""
    kind: str = "human"
    """auto | human"""
    owner: str = ""
    why: str = ""
    undo: str = ""
    """How to take back what the item asks for."""
    severity: str = "must"
    """must: without it the list fails; should: without it the list warns."""
    look: str | None = None
    """Of an automatic item, where: snapshot.kv.usage, config.kv_format, environment.driver,
    computed.wait_share."""
    expect: str | None = None
    """What is right: "<= 0.8", "== live", "in cpu triton", "known"."""
    fails: str | None = None
    """What is wrong; between the two it warns. None: whatever is not right."""
    when: str = "load"
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
class Line:
    """An item and what came of it."""

    item: Item
    result: ItemResult
    by: str | None = None
    """Who answered; None: the tool, or nobody."""


@dataclass(frozen=True)
class Outcome:
    checklist: Checklist
    lines: tuple[Line, ...]

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
    def open(self) -> list[Line]:
        return [line for line in self.lines if line.result.verdict != "pass"]

    def counts(self) -> dict[str, int]:
        verdicts = [line.result.verdict for line in self.lines]
        return {v: verdicts.count(v) for v in ("pass", "warn", "fail", "unknown")}


# --- answering ------------------------------------------------------------------------------


def merge(
    checklist: Checklist,
    automatic: Mapping[str, ItemResult],
    answers: Mapping[str, Answer],
) -> Outcome:
    """Every item with its result. Raises ConfigError for answers to items that there are not.

    A human may answer an automatic item only where the tool found nothing out.
    """
    known = {item.id for item in checklist.items}
    for name in answers:
        if name not in known:
            raise ConfigError(
                f"answers: {checklist.name} has no item {name!r}; it has {', '.join(sorted(known))}"
            )
    return Outcome(checklist, tuple(_line(item, automatic, answers) for item in checklist.items))


def _line(item: Item, automatic: Mapping[str, ItemResult], answers: Mapping[str, Answer]) -> Line:
    seen = automatic.get(item.id) if item.kind == "auto" else None
    if seen is not None and seen.verdict != "unknown":
        if item.id in answers:
            raise ConfigError(
                f"answers: {item.id} was found out ({seen.verdict}: {seen.evidence}); a human "
                "answers only what the tool cannot see"
            )
        return Line(item, seen)
    given = answers.get(item.id)
    if given is None:
        return Line(item, seen or ItemResult("unknown", "nobody has answered"))
    unseen = f" (not seen by the tool: {seen.evidence})" if seen is not None else ""
    return Line(item, _judged(given, item, unseen), given.by)


def _judged(given: Answer, item: Item, unseen: str) -> ItemResult:
    note = f": {given.note}" if given.note else ""
    if given.answer == NO:
        verdict = "fail" if item.severity == "must" else "warn"
        return ItemResult(verdict, f"answered no{note}{unseen}")
    words = "does not apply" if given.answer == NOT_APPLICABLE else "answered yes"
    return ItemResult("pass", f"{words}{note}{unseen}")


def read_answers(path: Path, by: str | None = None) -> dict[str, Answer]:
    """A TOML file of `item = "yes"`, or `item = { answer = "no", note = "…", by = "…" }`.

    `by` stands where the file names nobody. Raises ConfigError.
    """
    data = _toml(path, f"answers {path}")
    table = data.pop("answers", data if "answers" not in data else {})
    if not isinstance(table, dict):
        raise ConfigError(f"answers {path}: [answers] must be a table")
    found = {}
    for name, given in table.items():
        row = {"answer": given} if isinstance(given, str) else given
        if not isinstance(row, dict) or set(row) - {"answer", "by", "note"}:
            raise ConfigError(
                f'answers {path}: {name}: expected "yes", "no", or a table of answer, by and note'
            )
        try:
            texts = {key: str(value) for key, value in row.items()}
            found[name] = Answer(**{"by": by, **texts})  # type: ignore[arg-type]
        except (TypeError, ConfigError) as error:
            raise ConfigError(f"answers {path}: {name}: {error}") from error
    return found


def template(checklist: Checklist) -> str:
    """An answers file for people to fill in; what stays commented out stays unanswered."""
    lines = [f"# Answers to {checklist.name}: {checklist.title}", "", "[answers]"]
    for item in checklist.of_kind("human"):
        lines += [
            "",
            f"# {item.text} ({item.owner})",
            f'# {item.id} = {{ answer = "", note = "" }}',
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
    where = f"checklist {path.name}"
    data = _toml(path, where)
    schema = data.pop("schema", SCHEMA)
    if schema != SCHEMA:
        raise ConfigError(f"{where}: schema {schema!r} is not known; this version reads {SCHEMA}")
    rows = data.pop("item", [])
    title, about = data.pop("title", path.stem), data.pop("about", "")
    for key, value in (("title", title), ("about", about)):
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {key}: expected text, got {value!r}")
    if data:
        raise ConfigError(f"{where}: unknown key {next(iter(data))!r}; known: title, about, item")
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{where}: expected [[item]] tables")
    items = tuple(_item(row, f"{where}, item {i + 1}") for i, row in enumerate(rows))
    _check_unique([item.id for item in items], where)
    return Checklist(path.stem, title, " ".join(about.split()), items)


def _item(row: Any, where: str) -> Item:
    known = {f.name for f in fields(Item)}
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: expected a table")
    for key, value in row.items():
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known: {', '.join(sorted(known))}")
        if not isinstance(value, str):
            raise ConfigError(f"{where}: {key}: expected text, got {value!r}")
    for key in ("id", "text", "owner", "why"):
        if not row.get(key, "").strip():
            raise ConfigError(f"{where}: {key} is missing")
    item = Item(**{key: " ".join(value.split()) for key, value in row.items()})
    where = f"{where} ({item.id})"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", item.id):
        raise ConfigError(f"{where}: id: expected small letters, digits and _")
    for name, allowed in (("kind", KINDS), ("severity", SEVERITIES), ("when", WHENS)):
        if getattr(item, name) not in allowed:
            raise ConfigError(f"{where}: {name} {getattr(item, name)!r} is not one of "
                              f"{', '.join(allowed)}")  # fmt: skip
    _check_look(item, where)
    return item


def _check_look(item: Item, where: str) -> None:
    """What an automatic item looks at must exist, and a human one looks at nothing."""
    if item.kind == "human":
        if item.look or item.expect or item.fails:
            raise ConfigError(f"{where}: look, expect and fails belong to automatic items")
        return
    if item.look is None:
        raise ConfigError(f"{where}: an automatic item needs `look`")
    try:
        check_look(item.look)
        if not item.look.startswith("environment.") and item.expect is None:
            raise ConfigError('`expect` is missing, like "<= 0.8"')
        for text in (item.expect, item.fails):
            if text is not None:
                parse_expectation(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_unique(ids: Sequence[str], where: str) -> None:
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise ConfigError(f"{where}: id {twice[0]!r} is there twice")


def _toml(path: Path, where: str) -> dict[str, Any]:
    try:
        return tomli.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: cannot be read ({error})") from error
    except tomli.TOMLDecodeError as error:
        raise ConfigError(f"{where}: not valid TOML: {error}") from error
