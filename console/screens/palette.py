"""The command palette's entries: the registry's actions of the present place, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.theme import ThemeProvider

from console import actions
from console.control.surface import ConsoleSurface
from console.locale.lang import _


class Palette(CommandPalette):
    """The library's, in the reader's language."""

    def __init__(self, placeholder: str, providers: Sequence[type[Provider]] | None = None) -> None:
        super().__init__(providers, placeholder=_(placeholder))


class ActionCommands(Provider):
    async def discover(self) -> Hits:
        for action in self._available():
            run = partial(self._run, action)
            yield DiscoveryHit(_(action.title), run, help=_help(action))

    async def search(self, query: str) -> Hits:
        async for hit in _or_none(self._search(query)):
            yield hit

    async def _search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._available():
            score = matcher.match(_(action.title))
            if score > 0:
                run = partial(self._run, action)
                title = matcher.highlight(_(action.title))
                yield Hit(score, title, run, help=_help(action))

    def _available(self) -> list[actions.Action]:
        scope = cast(ConsoleSurface, self.app).here
        return [a for a in scope.actions() if not scope.forbidden(a)]

    async def _run(self, action: actions.Action) -> None:
        await self.app.run_action(action.name)


class Themes(ThemeProvider):
    async def search(self, query: str) -> Hits:
        async for hit in _or_none(super().search(query)):
            yield hit


async def _or_none(hits: Hits) -> Hits:
    """That there is none is said before the library says it in English."""
    some = False
    async for hit in hits:
        some = True
        yield hit
    if not some:
        yield Hit(1.0, _("nothing has these words"), lambda: None)


def _help(action: actions.Action) -> str:
    return f"{action.shown} · {_(action.help)}"
