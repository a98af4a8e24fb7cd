"""Which words of a text that is shown in Chinese are English and should not be.

What stays is recognised by what it is: commands, flags, keys, files, addresses and values by their
shape; names that are typed by the tables of the code that reads them; abbreviations, units,
products and people by the glossary. Nothing is left out by hand.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, get_args

from typer.main import get_command

from checklists import book
from console import themes
from console.cli import app as command_line
from console.commands.index import COMMANDS
from engine import config
from engine.remote.adapters import NAMES as ADAPTERS
from glossary import GLOSSARY
from playbooks.diagnosis.causes import CAUSES
from playbooks.faults.faults import FAULTS
from playbooks.faults.tampering import OUTSIDE_FAULTS
from playbooks.optlog.record import CLAIMS, DECISIONS
from playbooks.runs import spec
from playbooks.steps.fields import fields_of
from playbooks.steps.registry import STEP_TYPES
from repository import ROOT

SHAPES = re.compile(
    r"`[^`]*`"  # what is typed
    r"|“[^”]*”"  # what somebody else said
    r"|http_\d+：[^）]*"  # and what a server answered
    r"|\b[A-Z]\w+ et al\.[^；。)）]*"  # who found it
    r"|(?<![\w-])--?[a-z][\w-]*(?:[= ][A-Z_=.]+\b|=\S+)?"  # flags and what they take
    r"|\w+://\S+|(?<!\w)[~./]*(?:\w[\w.-]*)?/[\w./-]*[./]\w+"  # addresses and files
    r"|(?<!\w)[\w.-]*\w=\S*"  # keys with values
    r"|\b[a-z_]+ = [\w.|]+"  # and as a file has them
    r"|(?<!\w)[\w*]*[_\d*][\w.*:,-]*"  # what has a digit or a _ in it
    r"|\b[A-Za-z]\w*(?:\.[a-z_]\w*)+"  # dotted names and files
    r"|<[^>]*>|\b[A-Z]\w+/[A-Z]\w+"  # types, zones
    r"|ctrl\+\w|\{\w+\}"  # keys, and what a command takes
    r"|(?<!\w)\.[a-z]+\b"  # endings of files
)
"""Text of a shape that follows no language."""
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*[A-Za-z]")


def english(shown: str, *names: Iterable[str]) -> set[str]:
    """The words of English in `shown`. `names`: what it has of names, as they are typed."""
    kept = stays() | {word for several in names for name in several for word in WORD.findall(name)}
    rest = SHAPES.sub("|", _commands().sub("|", shown))
    return set(WORD.findall(rest)) - kept


VALUES = "输入的值"
"""The kind of words that only stay where one types: on a command line, in a file."""


@cache
def stays(*kinds: str) -> frozenset[str]:
    """The words of these kinds in the glossary's second table, by default of all but VALUES."""
    table = GLOSSARY.read_text("utf-8").partition("\n## ")[2]
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE))
    chosen = [rows[kind] for kind in kinds or rows.keys() - {VALUES}]
    return frozenset(word for row in chosen for word in WORD.findall(row))


@cache
def typed() -> frozenset[str]:
    """Names that are typed: commands and options, settings and their values, steps and what they
    measure, checklists, causes, faults."""
    found = [*COMMANDS, *themes.NAMES, *DECISIONS, *CLAIMS, *FAULTS, *OUTSIDE_FAULTS]
    found += [cause.name for cause in CAUSES] + [*ADAPTERS]
    found += [field.name for field in dataclasses.fields(config.EngineConfig)]
    for table in vars(config).values():
        found += (
            [name for name in table if isinstance(name, str)] if isinstance(table, tuple) else ()
        )
    for path in (ROOT / "checklists").glob("*.toml"):
        found.append(path.stem)
    for name in book.names():
        found += [item.id for item in book.load(name).items]
    for step in STEP_TYPES.values():
        found += [step.name, *step.metrics, *(field.name for field in fields_of(step.model))]
        found += [value for field in fields_of(step.model) for value in _choices(field.type)]
    for name in spec.names():
        found += [name, *(step.id for step in spec.load(name).steps)]
    for command in _tree():
        found += [command.name, *(p.name for p in command.params)]
    return stays(VALUES) | {word for name in found if name for word in WORD.findall(name)}


def _choices(kind: Any) -> list[str]:
    """Of a Literal, wherever it stands in a type."""
    if getattr(kind, "__origin__", None) is Literal:
        return [value for value in get_args(kind) if isinstance(value, str)]
    return [value for part in get_args(kind) for value in _choices(part)]


def _tree() -> list[Any]:
    root = get_command(command_line)
    commands = [root.get_command(None, name) for name in COMMANDS]
    return [*commands, *(one for c in commands for one in getattr(c, "commands", {}).values())]


@cache
def _commands() -> re.Pattern[str]:
    """A command as it is typed: evewatch, its name, and that of one below it."""
    root, lines = get_command(command_line), []
    for name in COMMANDS:
        below = "|".join(getattr(root.get_command(None, name), "commands", {}))
        lines.append(f"{name}(?: (?:{below}))?" if below else name)
    return re.compile(rf"evewatch(?: (?:{'|'.join(lines)})\b)?")
