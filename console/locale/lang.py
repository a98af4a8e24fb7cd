"""The product's language: English as it stands in the code, or gettext catalogues over it.

Texts are translated where they reach a reader, by their form (forms.py). So panels, engine and
reports know nothing of languages, and English pays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from console.locale.catalogue import texts_of
from console.locale.forms import Forms
from engine.errors import ConfigError
from playbooks.reports import language as written

FOLDER = Path(__file__).parent
ENGLISH = "en"
VARIABLE = "EVEWATCH_LANG"
_LETTER = re.compile("[A-Za-z]")
_NUMBER = re.compile(r"(?=.*\d)[^A-Za-z]*(?:(?:ms|s|tok|B|[KMGT]iB|W|GB)\b[^A-Za-z]*)*")
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


_code = ENGLISH
_forms: Forms | None = None


def code() -> str:
    """Of the language that is in use."""
    return _code


def template(form: str) -> str:
    """A text with {places}, in the language that is in use, its places as they are."""
    return form if _forms is None else _forms.said(form) or form


def said(form: str, **places: str) -> str:
    """A sentence with texts in its places: it is said as a whole, and so is each of them."""
    return template(form).format(**{name: _(text) for name, text in places.items()})


def use(language: str) -> None:
    """From now on, for this process. Raises ConfigError for a language that there is not."""
    global _code, _forms
    if language not in languages():
        raise ConfigError(f"--lang: {language!r} is not one of {', '.join(languages())}")
    _code = language
    _forms = None if language == ENGLISH else Forms(texts_of(FOLDER / language))
    _.cache_clear()
    written.use(language, _)


@lru_cache(maxsize=4096, typed=True)
def _(text: str) -> str:
    """In the language of the product; what is no text of ours stays as it is."""
    if (
        _forms is None
        or isinstance(text, written.Name)
        or not _LETTER.search(text)
        or _NUMBER.fullmatch(text)
    ):
        return text
    found = _forms.translate(text) or _forms.translate_some(text)
    if found is None:
        return text
    body = text.strip()
    return text.replace(body, found) if body != text else found
