"""One text of a catalogue with places, and what it becomes in the other language."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

PLACE = re.compile(r"\{(\w+)(:n)?\}")
WORD = re.compile(r"[A-Za-z]+")
NUMBER = r"[-+−±]?(?:\d[\d,]*(?:\.\d+)?|\.\d+|inf|nan)(?:e[-+]?\d+)?%?|–"
_QUANTITY = rf"(?:{NUMBER}) (?:[KMGT]?i?B|GB/s|W|MHz|ms|s|tok|%)"
ANY_KEY = "{any_key}: "
"""Before what is wrong with a key: the key may be said otherwise, "--key" or "file:3: key"."""
LITTLE = 4
"""Letters below which a form open at both ends, "{rule} at {target}", holds single words."""
_APART = re.compile(r"(?<=[一-鿿，。：；、（）“”]) (?=[一-鿿])|(?<=[一-鿿]) (?=[，。：；、（）“”])")
"""A blank that stands beside what is not Chinese in another text of this form."""


class Form:
    """One msgid and what it becomes. Places have a name; `{n:n}` holds only a number."""

    def __init__(self, msgid: str, said: str) -> None:
        self.msgid = msgid
        pieces = PLACE.split(msgid)
        self.names = pieces[1::3]
        self._numbers = [bool(mark) for mark in pieces[2::3]]
        self.numbers = sum(self._numbers)
        self._literals = [plain(literal) for literal in pieces[::3]]
        self.first = self._literals[0][:1]
        self.code = {
            name for at, name in enumerate(self.names)
            if "".join(self._literals[: at + 1]).count("`") % 2
        }  # fmt: skip
        self.of_any_key = msgid.startswith(ANY_KEY)
        self.begins_with_place = not self._literals[0]
        self.letters = sum(len(word) for text in self._literals for word in WORD.findall(text))
        self.ends_with_words = bool(re.search(r": \{\w+\}$", msgid))
        self._said = [part if at % 3 else plain(part) for at, part in enumerate(PLACE.split(said))]

    def words(self) -> list[str]:
        """Those that every text of this form has, whole."""
        marked = "\0".join(self._literals)
        return [
            word for word in WORD.findall(marked)
            if re.search(rf"(?<![\0\w]){word}(?![\0\w])", marked)
        ]  # fmt: skip

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        open_ended = not (self._literals[0] or self._literals[-1] or self._numbers[0])
        words = rf"(\S+|{_QUANTITY})" if open_ended and self.letters < LITTLE else "(.*?)"
        pattern = _either_case(self.first) + re.escape(self._literals[0][1:])
        for number, literal in zip(self._numbers, self._literals[1:], strict=True):
            pattern += (f"({NUMBER})" if number else words) + re.escape(literal)
        return re.compile(pattern, re.DOTALL)

    def match(self, text: str) -> dict[str, str] | None:
        """What stands in its places; None when the text has another form."""
        found = self._pattern.fullmatch(text)
        return None if found is None else dict(zip(self.names, found.groups(), strict=True))

    def say(self, values: Mapping[str, str]) -> str:
        """The translation with these values in its places."""
        said = "".join(
            values[part] if at % 3 == 1 else part
            for at, part in enumerate(self._said)
            if at % 3 != 2
        )
        return _APART.sub("", said)


def _either_case(letter: str) -> str:
    return f"[{letter}{letter.swapcase()}]" if letter.isalpha() else re.escape(letter)


def plain(text: str) -> str:
    return text.replace("{{", "{").replace("}}", "}")


def places(text: str) -> Iterator[str]:
    """The names of its places."""
    return (match[1] for match in PLACE.finditer(text))
