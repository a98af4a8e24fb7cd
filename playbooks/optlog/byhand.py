"""Records that an operator writes: from the text of flags, or as a decision on one there is."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine.errors import ConfigError
from playbooks.optlog.provenance import provenance_of
from playbooks.optlog.record import Change, LogEffect, Record

UNKNOWN = ("", "-", "–", "null", "none")


def by_hand(what: Sequence[str], effect: Sequence[str], how: Sequence[str], **rest: Any) -> Record:
    """`what` and `effect` are "key=before:after", `how` is "fact=value". Raises ConfigError."""
    rest["operator"] = rest.get("operator") or user()
    for name in ("problems", "artifacts"):
        rest[name] = tuple(rest.get(name, ()))
    return Record(
        what=tuple(Change(*_ends(text, "--what")) for text in what),
        effect=tuple(_effect(text) for text in effect),
        how=dict(_fact(text) for text in how),
        environment=provenance_of(),
        **rest,
    )


def decided(origin: Record, decision: str) -> str:
    """The title of a decision on a record."""
    words = {"adopt": "adopted", "reject": "rejected", "rolled_back": "rolled back"}
    return f"{words.get(decision, decision)}: {origin.title}"


def decision_on(origin: Record, made: Record) -> Record:
    """`made` with what it leaves open taken from the record that it decides on."""
    return replace(
        made,
        what=made.what or origin.what,
        why=made.why or origin.why,
        how=dict(origin.how) | dict(made.how) | {"decides on": origin.id},
        effect=made.effect or origin.effect,
        problems=made.problems or origin.problems,
        rollback=made.rollback or origin.rollback,
        environment=origin.environment,
        artifacts=(*made.artifacts, *origin.artifacts),
    )


def user() -> str | None:
    """The name of whoever runs this, as far as the system knows it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


def _ends(text: str, option: str) -> tuple[str, Any, Any]:
    key, equals, values = text.partition("=")
    before, colon, after = _split(values)
    if not key.strip() or not equals or not colon:
        raise ConfigError(f"{option} {text!r}: expected key=before:after, like max_batch=64:48")
    return key.strip(), _value(before), _value(after)


def _split(values: str) -> tuple[str, str, str]:
    """At the colon; where there are more, as between two times or addresses, at the middle one."""
    colons = [i for i, letter in enumerate(values) if letter == ":"]
    if len(colons) % 2 == 0:
        return values, "", ""
    at = colons[len(colons) // 2]
    return values[:at], ":", values[at + 1 :]


def _effect(text: str) -> LogEffect:
    metric, before, after = _ends(text, "--effect")
    return LogEffect(metric, before, after)


def _fact(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise ConfigError(f"--how {text!r}: expected fact=value, like seed=7")
    return key.strip(), _value(value)


def _value(text: str) -> Any:
    """A number, true or false where it is one; nothing where nobody knows."""
    text = text.strip()
    if text.lower() in UNKNOWN:
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    makers: tuple[Callable[[str], Any], ...] = (int, float)
    for make in makers:
        try:
            return make(text)
        except ValueError:
            continue
    return text
