"""One run of a playbook: watched step by step. Leaving the screen does not end the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from console import actions
from console.control.run_state import PlaybookRun
from console.locale.lang import _
from console.renderables.lines import Line, Span
from console.renderables.run import run_page
from console.renderables.screen_state import ScreenState
from console.screens.files import ask_file
from console.screens.lists import PageScreen

FORMATS = ("md", "html", "csv", "json")  # not shown


class RunScreen(PageScreen):
    PLACE = actions.RUN

    def __init__(self, run: PlaybookRun) -> None:
        super().__init__()
        self.run_shown = run

    def page(self, state: ScreenState, width: int) -> tuple[Line, Sequence[Line]]:
        title = (Span(self.run_shown.playbook.title, "title"),)
        return title, run_page(self.run_shown, self.console_app.clock(), max(20, width))

    def action_cancel_run(self) -> None:
        self.console_app.runs.cancel()

    def action_export_shown(self) -> None:
        report = self.run_shown.report
        if report is None:
            self.notify("there is no report before it has ended", severity="warning", timeout=3)
            return

        def made(path: Path, fmt: str) -> str:
            from playbooks.reports.formats import WRITERS

            return str(WRITERS[f".{fmt}"](report))

        name = f"{self.run_shown.playbook.name}.md"
        ask_file(self.console_app, "Export the report", name, FORMATS, made)

    def copied(self) -> str:
        return f"{_(self.run_shown.playbook.title)}\n{self.pane.text}"
