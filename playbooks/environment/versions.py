"""Comparing versions: "2.13.0+cpu", "535.183.01", ">=2,<2.3"."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from engine.errors import ConfigError

Parts = tuple[int, ...]
_COMPARE: dict[str, Callable[[Parts, Parts], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
    ">": operator.gt, "<": operator.lt,
}  # fmt: skip


def parts(text: str) -> Parts:
    """The numbers that a version begins with: "2.13.0+cpu" -> (2, 13, 0)."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def local(text: str) -> str | None:
    """What is behind the plus: "0.11.0+cu130" -> "cu130"."""
    _, plus, behind = text.partition("+")
    return behind if plus else None


def begins(version: str, prefix: str) -> bool:
    """Is 2.13.0 a 2.13? (And not a 2.1.)"""
    wanted = parts(prefix)
    return bool(wanted) and parts(version)[: len(wanted)] == wanted


def at_least(version: str, least: str) -> bool:
    return _cut(parts(version), parts(least)) >= parts(least)


def matches(version: str, spec: str) -> bool:
    """Do all of the comparisons in `spec` hold? Raises ConfigError for one that is none."""
    for condition in spec.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|!=|>|<)\s*(\d[\d.]*)\s*", condition)
        if match is None:
            raise ConfigError(f"compatibility table: {condition!r} is no comparison, like >=2.3")
        sign, number = match.groups()
        have, want = parts(version), parts(number)
        if sign in ("==", "!="):
            have = _cut(have, want)
        width = max(len(have), len(want))
        if not have or not _COMPARE[sign](_padded(have, width), _padded(want, width)):
            return False
    return True


def _cut(version: Parts, like: Parts) -> Parts:
    return _padded(version, len(like))[: len(like)]


def _padded(version: Parts, width: int) -> Parts:
    return version + (0,) * (width - len(version))
