"""The console's language: English as it stands in the code, or a gettext catalogue over it.

Texts are translated where they reach the screen, numbers and all: a msgid like "the first {} of
{}" stands for every text of that form. So panels know nothing of languages, and an English
console pays nothing. In a line of fixed columns a translation gets the cells of its original.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from rich.cells import cell_len

from console.renderables.lines import Line, Span
from engine.errors import ConfigError

FOLDER = Path(__file__).parent
ENGLISH = "en"
VARIABLE = "EVEWATCH_LANG"
_PLACE = "{}"
_LETTER = re.compile("[A-Za-z]")
_NUMBER = re.compile(r"(?=.*\d)[^A-Za-z]*(?:(?:ms|s|min|h|tok|B|[KMGT]iB|of|W|GB)\b[^A-Za-z]*)*")
"""What has no words in it: not worth looking up."""


def languages() -> list[str]:
    """Those that there are."""
    return [ENGLISH, *sorted(path.stem for path in FOLDER.glob("*.po"))]


def wanted(environment: Mapping[str, str]) -> str:
    """What the terminal's environment asks for, English where we have no such language."""
    for name in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"):
        if text := environment.get(name):
            found = re.split(r"[_.@-]", text)[0].lower()
            return found if found in languages() else ENGLISH
    return ENGLISH


# --- catalogues ------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(.)")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def read_po(text: str) -> dict[str, str]:
    """msgid -> msgstr of a .po file; comments and what is not translated are left out."""
    found: dict[str, str] = {}
    key, parts = "", {"msgid": "", "msgstr": ""}
    for line in [*text.splitlines(), 'msgid ""']:
        word, _, rest = line.partition(" ")
        if word == "msgid":
            if parts["msgid"] and parts["msgstr"]:
                found[parts["msgid"]] = parts["msgstr"]
            parts = {"msgid": "", "msgstr": ""}
        if word in parts:
            key, line = word, rest
        if (match := _STRING.fullmatch(line.strip())) and key:
            parts[key] += _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], match[1])
    return found


# --- translating -----------------------------------------------------------------------------


class Catalogue:
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._exact = texts
        # The form that says most comes first: "{} of {}" would fit half of all texts.
        forms = sorted((k for k in texts if _PLACE in k), key=lambda k: -len(k))
        self._forms = [(_form(key), texts[key]) for key in forms]

    def text(self, text: str) -> str:
        if not _LETTER.search(text) or _NUMBER.fullmatch(text):
            return text
        if text in self._exact:
            return self._exact[text]
        for form, translation in self._forms:
            if match := form.fullmatch(text):
                parts = (self._exact.get(part, part) for part in match.groups())
                return translation.format(*parts)
        return text

    def span(self, span: Span) -> Span:
        """Blanks around a text are kept, and the cells that it takes as a whole."""
        body = span.text.strip()
        found = self.text(body)
        if found == body:
            return span
        lead = len(span.text) - len(span.text.lstrip())
        tail = len(span.text) - len(span.text.rstrip())
        room = cell_len(body)
        if lead > 1 and not tail:  # a heading at the right edge of its column
            return span._replace(text=" " * max(1, lead + room - cell_len(found)) + found)
        if tail:  # the blanks after it make up for what it is longer or shorter
            tail = max(1, tail + room - cell_len(found))
        return span._replace(text=" " * lead + found + " " * tail)


def _form(key: str) -> re.Pattern[str]:
    return re.compile("(.+?)".join(map(re.escape, key.split(_PLACE))), re.DOTALL)


_catalogue: Catalogue | None = None


def use(language: str) -> None:
    """From now on, for this process. Raises ConfigError for a language that there is not."""
    global _catalogue
    if language not in languages():
        raise ConfigError(f"--lang: {language!r} is not one of {', '.join(languages())}")
    path = FOLDER / f"{language}.po"
    _catalogue = None if language == ENGLISH else Catalogue(read_po(path.read_text("utf-8")))
    _.cache_clear()
    _span.cache_clear()


@lru_cache(maxsize=4096)
def _(text: str) -> str:
    return text if _catalogue is None else _catalogue.text(text)


@lru_cache(maxsize=8192)
def _span(span: Span) -> Span:
    return span if _catalogue is None else _catalogue.span(span)


def localized(line: Line) -> Line:
    """A line in the language of the console."""
    return line if _catalogue is None else tuple(map(_span, line))
