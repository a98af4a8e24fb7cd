"""How a console looks: its language and its colours, as options of every command that opens one.

They go into this process's environment, where the console looks for them anyway.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from console.locale import lang
from engine.errors import ConfigError


def take_language(args: Sequence[str]) -> list[str]:
    """The command line without --lang, which may stand anywhere on it. From now on texts are in
    the language that it names, else in that of the terminal. Raises ConfigError."""
    kept, named = [], None
    words = iter(args)
    for word in words:
        if word == "--":
            kept += [word, *words]
        elif word == "--lang":
            named = next(words, "")
        elif word.startswith("--lang="):
            named = word.partition("=")[2]
        else:
            kept.append(word)
    lang.use(lang.wanted(os.environ) if named is None else named)
    if named is not None:
        os.environ[lang.VARIABLE] = named
    return kept


def _theme(name: str | None) -> str | None:
    if name is not None:
        from console import themes

        if name not in themes.NAMES:
            raise ConfigError(f"--theme: {name!r} is not one of {', '.join(themes.NAMES)}")
        os.environ[themes.VARIABLE] = name
    return name


Lang = Annotated[
    str | None, typer.Option(help="en or zh; by default what LANG says. Of every command.")
]
"""For the page of help: `take_language` has it before."""
Theme = Annotated[
    str | None,
    typer.Option(
        callback=_theme, help="dark, light, contrast or mono; by default what suits the terminal."
    ),
]
