"""A playbook with single parameters of its steps set from outside, as `check --with` does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import tomli

from checklists.tomlfile import FieldError, checked
from engine.errors import ConfigError
from playbooks.runs.spec import Playbook, PlaybookStep
from playbooks.steps.fields import fields_of


def with_parameters(book: Playbook, texts: Iterable[str]) -> Playbook:
    """Each text is STEP.PARAMETER=VALUE; STEP. may be left out where only one step has it.

    Values are read as in TOML, else as a text. Raises ConfigError.
    """
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise ConfigError(f"--with {text!r}: expected step.parameter=value")
        step, parameter = _find(book, name)
        values = asdict(step.parameters) | {parameter: _read(value)}
        try:
            changed = replace(step, parameters=checked(step.type.model, values))
        except FieldError as error:
            raise ConfigError(f"--with {name}: {error.what}") from None
        book = replace(book, steps=tuple(changed if s is step else s for s in book.steps))
    return book


def _find(book: Playbook, name: str) -> tuple[PlaybookStep, str]:
    wanted, dot, parameter = name.rpartition(".")
    known = [(step, field.name) for step in book.steps for field in fields_of(step.type.model)]
    found = [(s, p) for s, p in known if p == parameter and (not dot or s.id == wanted)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{step.id}.{p}" for step, p in found or known)
    what = "several steps have it; say which" if found else f"no step of {book.name} has it; known"
    raise ConfigError(f"--with {name}: {what}: {names}")


def _read(text: str) -> Any:
    try:
        return tomli.loads(f"value = {text}")["value"]
    except tomli.TOMLDecodeError:
        return text
