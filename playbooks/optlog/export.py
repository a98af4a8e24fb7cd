"""The log for readers elsewhere: Markdown, self-contained HTML, CSV (a row an effect), JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playbooks.optlog.page import Block, Bullets, Heading, Paragraph, page
from playbooks.optlog.record import LogEffect, Record
from playbooks.optlog.store import Reading
from playbooks.reports.document import Table, text_of
from playbooks.reports.formats import csv_text, html_page, html_table, markdown_rows
from playbooks.reports.language import colon
from playbooks.reports.text import html, json_text, json_values, markdown

SCHEMA = 1
TITLE = "Optimization log"
COLUMNS = (
    "id", "time", "title", "operator", "decision", "claim", "what", "why", "metric", "before",
    "after", "low", "high", "n", "verdict", "problems", "rollback",
)  # fmt: skip


def report_of(records: Sequence[Record], reading: Reading, file: Path) -> dict[str, Any]:
    """What `log list --json` prints: the records as they are stored, and what is damaged."""
    return {
        "schema": SCHEMA,
        "kind": "log",
        "file": str(file),
        "total": len(reading.records),
        "records": [json_values(record.to_dict()) for record in records],
        "damage": [asdict(damage) for damage in reading.damage],
    }


def export(records: Sequence[Record], reading: Reading, file: Path, fmt: str) -> str:
    """The text in the format `fmt`, one of FORMATS."""
    return FORMATS[fmt](records, reading, file)


def as_json(records: Sequence[Record], reading: Reading, file: Path) -> str:
    return json_text(report_of(records, reading, file), indent=2) + "\n"


def as_csv(records: Sequence[Record], reading: Reading, file: Path) -> str:
    """RFC 4180, numbers as they are; a record without an effect has one row all the same."""
    rows = [_csv_row(r, effect) for r in records for effect in r.effect or (None,)]
    return csv_text(COLUMNS, rows)


def _csv_row(record: Record, effect: LogEffect | None) -> list[Any]:
    what = "; ".join(f"{c.key}: {text_of(c.before)} -> {text_of(c.after)}" for c in record.what)
    head = [record.id, record.time, record.title, record.operator, record.decision, record.claim]
    names = ("metric", "before", "after", "low", "high", "n", "verdict")
    numbers = [getattr(effect, name) if effect else None for name in names]
    return [*head, what, record.why, *numbers, "; ".join(record.problems), record.rollback]


def _lead(records: Sequence[Record], reading: Reading) -> Iterator[Block]:
    yield Heading(TITLE, 1)
    some = "" if len(records) == len(reading.records) else f" of {len(reading.records)}"
    yield Paragraph(f"{len(records)}{some} records, the oldest first.")
    if reading.damage:
        yield Paragraph("The log's file is not as it was written:")
        yield Bullets([damage.text for damage in reading.damage])


def _blocks(records: Sequence[Record], reading: Reading) -> Iterator[Block]:
    yield from _lead(records, reading)
    for record in records:
        yield from page(record)


# --- Markdown -----------------------------------------------------------------------------


def as_markdown(records: Sequence[Record], reading: Reading, file: Path) -> str:
    return "\n\n".join(_markdown(block) for block in _blocks(records, reading)) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {markdown(text)}"
        case Paragraph(text):
            return markdown(text)
        case Bullets(items):
            return "\n".join(f"- {_item(item, markdown)}" for item in items)
        case Table():
            return "\n".join(markdown_rows(block))


def _item(item: str | tuple[str, str], say: Callable[[str], str]) -> str:
    return say(item) if isinstance(item, str) else colon().join(map(say, item))


# --- HTML ---------------------------------------------------------------------------------


def as_html(records: Sequence[Record], reading: Reading, file: Path) -> str:
    return html_page(TITLE, map(_html, _blocks(records, reading)))


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{html(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_item(item, html)}</li>" for item in items) + "</ul>"
        case Table():
            return html_table(block)


FORMATS: dict[str, Callable[[Sequence[Record], Reading, Path], str]] = {
    "md": as_markdown, "csv": as_csv, "json": as_json, "html": as_html,
}  # fmt: skip
