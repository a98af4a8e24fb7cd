"""Records of the optimization log in full, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from console.commands.terminal import Page
from playbooks.optlog import Record
from playbooks.optlog.page import Bullets, Heading, Paragraph, page
from playbooks.reports.document import Table


def show_pages(records: Sequence[Record]) -> None:
    shown = Page()
    for record in records:
        for block in page(record):
            match block:
                case Heading(text, level):
                    shown.lines([""])
                    shown.paragraph(text, "bold" if level < 3 else "bold dim")
                case Paragraph(text):
                    shown.paragraph(text)
                case Bullets(items):
                    for item in items:
                        shown.paragraph(f"• {item}")
                case Table():
                    shown.table(block)
