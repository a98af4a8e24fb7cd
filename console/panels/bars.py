"""The lines around the panels: header, banner, footer."""

from __future__ import annotations

from console.actions import Scope
from console.panels.lineview import LineView
from console.renderables.header import banner, header
from console.renderables.keys import footer
from console.renderables.screen_state import ScreenState


class HeaderLine(LineView):
    def show(self, state: ScreenState) -> None:
        self.set_lines([header(state, self.size.width)])


class BannerLine(LineView):
    """Takes a line only while there is something to say."""

    def show(self, state: ScreenState) -> None:
        line = banner(state, self.size.width or self.app.size.width)
        self.display = bool(line)
        self.set_lines([line])


class FooterLine(LineView):
    def show(self, scope: Scope) -> None:
        self.set_lines([footer(scope, self.size.width)])
