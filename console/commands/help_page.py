"""Pages of help in the reader's language: a command's own words, and those of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import cleandoc
from typing import Any

from typer.core import TyperGroup

from console.locale import lang
from console.locale.lang import _

LEAST = 10
"""Cells of an option's text."""


class HelpPage(TyperGroup.context_class.formatter_class):  # type: ignore[name-defined,misc]
    """As the library writes it; in other languages than English each text is said as a whole
    before it is wrapped, by terminal cells."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix or f"{_('Usage')}: ")

    def write_heading(self, heading: str) -> None:
        super().write_heading(_(heading))

    def write_text(self, text: str) -> None:
        if lang.code() == lang.ENGLISH:
            super().write_text(text)
            return
        from console.renderables.wrapping import wrap

        blank = " " * self.current_indent
        paragraphs = (_(" ".join(part.split())) for part in text.split("\n\n"))
        rows = ["\n".join(blank + row for row in wrap(p, self.width - len(blank)))
                for p in paragraphs]  # fmt: skip
        self.write("\n\n".join(rows) + "\n")

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        if lang.code() == lang.ENGLISH:
            super().write_dl(rows, col_max, col_spacing)
            return
        from rich.cells import cell_len  # English help loads no more than it needs

        from console.renderables.wrapping import wrap

        blank = " " * self.current_indent
        column = min(max(cell_len(name) for name, _text in rows), col_max) + col_spacing
        for name, text in rows:
            told = wrap(_(text), max(self.width - column - self.current_indent, LEAST))
            fits = cell_len(name) <= column - col_spacing
            if not fits or not told:
                self.write(f"{blank}{name}\n")
            for at, row in enumerate(told):
                lead = name if fits and at == 0 else ""
                self.write(blank + lead + " " * (column - cell_len(lead)) + row.rstrip() + "\n")


class _Context(TyperGroup.context_class):  # type: ignore[valid-type,misc]
    formatter_class = HelpPage


def _short(cut: Callable[[int], str], command: Any, limit: int = 45) -> str:
    """Its first sentence, which is said as a whole: the library's cut would tear it apart."""
    if lang.code() == lang.ENGLISH or not command.help:
        return cut(limit)
    first = " ".join(cleandoc(command.help).split("\n\n")[0].split())
    return _(first).partition("。")[0]


def with_help_pages(command: Any) -> Any:
    """The command, and those below it, with these pages."""
    command.context_class = _Context
    command.get_short_help_str = partial(_short, command.get_short_help_str, command)
    for below in getattr(command, "commands", {}).values():
        with_help_pages(below)
    return command
