"""How a console looks: its language and its colours, as options of every command that opens one.

They go into this process's environment, where the console looks for them anyway.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from engine.errors import ConfigError


def _language(name: str | None) -> str | None:
    if name is not None:
        from console.locale import lang

        lang.use(name)  # refuses what there is not
        os.environ[lang.VARIABLE] = name
    return name


def _theme(name: str | None) -> str | None:
    if name is not None:
        from console import themes

        if name not in themes.NAMES:
            raise ConfigError(f"--theme: {name!r} is not one of {', '.join(themes.NAMES)}")
        os.environ[themes.VARIABLE] = name
    return name


Lang = Annotated[
    str | None, typer.Option(callback=_language, help="en or zh; by default what LANG says.")
]
Theme = Annotated[
    str | None,
    typer.Option(
        callback=_theme, help="dark, light, contrast or mono; by default what suits the terminal."
    ),
]
