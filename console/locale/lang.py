"""The product's language: English as it stands in the code, or gettext catalogues over it.

Texts are translated where they reach a reader, by their form (forms.py). So panels, engine and
reports know nothing of languages, and English pays nothing. In a line of fixed columns a
translation gets the cells of its original.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from rich.cells import cell_len

from console.locale.catalogue import texts_of
from console.locale.forms import Forms
from console.renderables.lines import Line, Span
from engine.errors import ConfigError

FOLDER = Path(__file__).parent
ENGLISH = "en"
VARIABLE = "EVEWATCH_LANG"
_LETTER = re.compile("[A-Za-z]")
_NUMBER = re.compile(r"(?=.*\d)[^A-Za-z]*(?:(?:ms|s|min|h|tok|B|[KMGT]iB|of|W|GB)\b[^A-Za-z]*)*")
"""What has no words in it: not worth looking up."""


def languages() -> list[str]:
    """Those that there are."""
    return [ENGLISH, *sorted({path.parent.name for path in FOLDER.glob("*/*.po")})]


def wanted(environment: Mapping[str, str]) -> str:
    """What the terminal's environment asks for, English where we have no such language."""
    for name in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"):
        if text := environment.get(name):
            found = re.split(r"[_.@-]", text)[0].lower()
            return found if found in languages() else ENGLISH
    return ENGLISH


_forms: Forms | None = None


def use(language: str) -> None:
    """From now on, for this process. Raises ConfigError for a language that there is not."""
    global _forms
    if language not in languages():
        raise ConfigError(f"--lang: {language!r} is not one of {', '.join(languages())}")
    _forms = None if language == ENGLISH else Forms(texts_of(FOLDER / language))
    _.cache_clear()
    _span.cache_clear()


@lru_cache(maxsize=4096)
def _(text: str) -> str:
    """In the language of the product; what is no text of ours stays as it is."""
    if _forms is None or not _LETTER.search(text) or _NUMBER.fullmatch(text):
        return text
    found = _forms.translate(text)
    if found is None:
        return text
    body = text.strip()
    return text.replace(body, found) if body != text else found


@lru_cache(maxsize=8192)
def _span(span: Span) -> Span:
    """Blanks around a text are kept, and the cells that it takes as a whole."""
    body = span.text.strip()
    found = _(body)
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


def localized(line: Line) -> Line:
    """A line in the language of the console."""
    return line if _forms is None else tuple(map(_span, line))
