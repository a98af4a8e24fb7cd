"""A playbook with single parameters of its steps set from outside, as `check --with` does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import tomli

from checklists.tomlfile import checked
from engine.errors import ConfigError
from playbooks.runs.spec import Playbook, PlaybookStep
from playbooks.steps.fields import fields_of


def with_parameters(book: Playbook, texts: Iterable[str]) -> Playbook:
    """Each text is STEP.PARAMETER=VALUE; STEP. may be left out where only one step has it.

    Values are read as in TOML, else as a text. Those of a step are checked together, so that two
    that need each other may come in any order. Raises ConfigError.
    """
    given: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise ConfigError(f"--with {text!r}: expected step.parameter=value")
        step, parameter = _find(book, name)
        given.setdefault(step.id, {})[parameter] = read_value(value)
    return replace(book, steps=tuple(_with(step, given.get(step.id)) for step in book.steps))


def _with(step: PlaybookStep, given: dict[str, Any] | None) -> PlaybookStep:
    if given is None:
        return step
    try:
        values = checked(step.type.model, asdict(step.parameters) | given)
    except ConfigError as error:  # it begins with the parameter's name
        raise ConfigError(f"--with {step.id}.{error}") from None
    return replace(step, parameters=values)


def _find(book: Playbook, name: str) -> tuple[PlaybookStep, str]:
    wanted, dot, parameter = name.rpartition(".")
    known = [(step, field.name) for step in book.steps for field in fields_of(step.type.model)]
    found = [(s, p) for s, p in known if p == parameter and (not dot or s.id == wanted)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{step.id}.{p}" for step, p in found or known)
    what = "several steps have it; say which" if found else f"no step of {book.name} has it; known"
    raise ConfigError(f"--with {name}: {what}: {names}")


def read_value(text: str) -> Any:
    """As in TOML, else a text."""
    try:
        return tomli.loads(f"value = {text}")["value"]  # not shown
    except tomli.TOMLDecodeError:
        return text
