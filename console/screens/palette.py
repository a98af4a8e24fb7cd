"""The command palette's entries: the registry's actions of the present place, nothing else."""

from __future__ import annotations

from functools import partial
from typing import cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from console import actions
from console.control.surface import ConsoleSurface
from console.locale.lang import _


class ActionCommands(Provider):
    async def discover(self) -> Hits:
        for action in self._available():
            run = partial(self._run, action)
            yield DiscoveryHit(_(action.title), run, help=_help(action))

    async def search(self, query: str) -> Hits:
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


def _help(action: actions.Action) -> str:
    return f"{action.shown} · {_(action.help)}"
