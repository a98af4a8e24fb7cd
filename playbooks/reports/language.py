"""The language of what is written for people: English as it stands, unless another is in use.

Reports, logs and messages are English in memory, in JSON and CSV. Whoever writes them for a reader
says each text with `say`. The console knows the languages; it puts one in use for the process.
"""

from __future__ import annotations

from collections.abc import Callable

Say = Callable[[str], str]


class Name(str):
    """A name, or several: what is typed, and so the same in every language."""

    __slots__ = ()


COLONS = {"zh": "："}
_code = "en"
_say: Say = str


def use(code: str, say: Say) -> None:
    """`say` gives a whole English text in the language `code`, and what it does not know as it
    is."""
    global _code, _say
    _code, _say = code, say


def code() -> str:
    """As HTML names it: en, zh."""
    return _code


def colon() -> str:
    """Between a name and what it is."""
    return COLONS.get(_code, ": ")


def say(text: str) -> str:
    return _say(text)
