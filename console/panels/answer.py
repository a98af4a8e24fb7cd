"""The pane in which answers arrive; it follows the newest line unless scrolled up."""

from __future__ import annotations

from textual import events

from console.control.conversation import Conversation
from console.panels.panel import Framed
from console.renderables.conversation import conversation
from console.renderables.lines import Span


class AnswerPane(Framed):
    def __init__(self, talk: Conversation) -> None:
        super().__init__(id="answer")
        self.talk = talk
        self._up = 0
        """Lines scrolled up from the newest one."""

    def show(self, talk: Conversation) -> None:
        self.talk = talk
        self._draw()

    def scroll_pages(self, pages: int) -> None:
        self._up -= pages * max(1, self.room[1] - 1)
        self._draw()

    def follow(self) -> None:
        self._up = 0

    def _draw(self) -> None:
        width, height = self.room
        if width <= 0 or height <= 0:
            return
        running = self.talk.request_id is not None
        lines = conversation(self.talk.turns, running, width)
        self._up = max(0, min(self._up, len(lines) - height))
        end = len(lines) - self._up
        self.set_body((Span("Answer", "operator"),), lines[max(0, end - height) : end])

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._up += 2
        self._draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._up -= 2
        self._draw()
