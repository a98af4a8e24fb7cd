"""The pane in which answers arrive; it follows the newest line unless scrolled up."""

from __future__ import annotations

from console.control.conversation import Conversation
from console.panels.panel import Scrolled
from console.renderables.conversation import conversation
from console.renderables.lines import Span


class AnswerPane(Scrolled):
    def __init__(self, talk: Conversation) -> None:
        super().__init__(id="answer")
        self.talk = talk
        self._up = 0
        """Lines scrolled up from the newest one."""

    def show(self, talk: Conversation) -> None:
        self.talk = talk
        self.redraw()

    def move(self, rows: int) -> None:
        self._up -= rows
        self.redraw()

    def follow(self) -> None:
        self._up = 0

    def redraw(self) -> None:
        width, height = self.room
        if width <= 0 or height <= 0:
            return
        running = self.talk.request_id is not None
        lines = conversation(self.talk.turns, running, width)
        self._up = max(0, min(self._up, len(lines) - height))
        end = len(lines) - self._up
        self.set_body((Span("Answer", "operator"),), lines[max(0, end - height) : end])
