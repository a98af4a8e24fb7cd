"""The page for who comes next: made once when it is opened, from what is kept and seen now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual.message import Message

from console import actions
from console.renderables.lines import BLANK, Line, Span, text_line
from console.renderables.pages import document_lines
from console.renderables.screen_state import ScreenState
from console.screens.files import ask_file
from console.screens.lists import PageScreen
from engine.errors import ConfigError

FORMATS = ("md", "html", "json")  # not shown
SINCE_S = 12 * 3600.0


class HandoverScreen(PageScreen):
    PLACE = actions.HANDOVER

    class Made(Message):
        """Read off the UI's thread."""

        def __init__(self, report: dict[str, Any] | None, error: str) -> None:
            super().__init__()
            self.report, self.error = report, error

    def __init__(self) -> None:
        super().__init__()
        self._report: dict[str, Any] | None = None
        self._error = ""
        self._lines: tuple[int, list[Line]] = (0, [])

    def on_mount(self) -> None:
        self.run_worker(self._make, thread=True)

    def _make(self) -> None:
        from playbooks.handover.gather import gathered

        app = self.console_app
        now = app.clock()
        try:
            report = gathered(app.log_book, now - SINCE_S, now, *app.watched())
        except ConfigError as error:
            self.post_message(self.Made(None, str(error)))
        else:
            self.post_message(self.Made(report, ""))

    def on_handover_screen_made(self, message: Made) -> None:
        self._report, self._error = message.report, message.error
        self._lines = (0, [])
        self.show_body(self._state)

    def page(self, state: ScreenState, width: int) -> tuple[Line, Sequence[Line]]:
        title = (Span("Handover", "title"),)
        if self._report is None:
            text = self._error or "reading the log …"
            return title, [text_line(text, "trouble" if self._error else "faint"), BLANK]
        if self._lines[0] != width and width > 0:
            self._lines = (width, document_lines(self._report, width))
        return title, self._lines[1]

    def action_export_shown(self) -> None:
        report = self._report
        if report is None:
            self.notify("there is no page yet", severity="warning", timeout=3)
            return

        def made(path: Path, fmt: str) -> str:
            from playbooks.reports.formats import WRITERS

            return str(WRITERS[f".{fmt}"](report))

        ask_file(self.console_app, "Export the handover", "handover.md", FORMATS, made)
