"""The lines around the panels: header, banner, footer."""

from __future__ import annotations

from console.actions import Scope
from console.panels.lineview import LineView
from console.renderables.frame import Frame
from console.renderables.header import banner, header
from console.renderables.keys import footer


class HeaderLine(LineView):
    def show(self, frame: Frame) -> None:
        self.set_lines([header(frame, self.size.width)])


class BannerLine(LineView):
    """Takes a line only while there is something to say."""

    def show(self, frame: Frame) -> None:
        line = banner(frame, self.size.width or self.app.size.width)
        self.display = bool(line)
        self.set_lines([line])


class FooterLine(LineView):
    def show(self, scope: Scope) -> None:
        self.set_lines([footer(scope, self.size.width)])
