"""The log for readers elsewhere: Markdown, self-contained HTML, CSV (a row an effect), JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from playbooks.optlog.page import Block, Bullets, Heading, Paragraph, page, text_of
from playbooks.optlog.record import LogEffect, Record, plain
from playbooks.optlog.store import Reading
from playbooks.reports.document import Table
from playbooks.reports.report import STYLE, html_table, markdown_rows

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
        "records": [plain(record.to_dict()) for record in records],
        "damage": [asdict(damage) for damage in reading.damage],
    }


def export(records: Sequence[Record], reading: Reading, file: Path, fmt: str) -> str:
    """The text in the format `fmt`, one of FORMATS."""
    return FORMATS[fmt](records, reading, file)


def as_json(records: Sequence[Record], reading: Reading, file: Path) -> str:
    report = report_of(records, reading, file)
    return json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def as_csv(records: Sequence[Record], reading: Reading, file: Path) -> str:
    """RFC 4180, numbers as they are; a record without an effect has one row all the same."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for record in records:
        for effect in record.effect or (None,):
            writer.writerow(_csv_row(record, effect))
    return out.getvalue()


def _csv_row(record: Record, effect: LogEffect | None) -> list[Any]:
    what = "; ".join(f"{c.key}: {text_of(c.before)} -> {text_of(c.after)}" for c in record.what)
    head = [record.id, record.time, record.title, record.operator, record.decision, record.claim]
    names = ("metric", "before", "after", "low", "high", "n", "verdict")
    numbers = [getattr(effect, name) if effect else None for name in names]
    row = [*head, what, record.why, *numbers, "; ".join(record.problems), record.rollback]
    return ["" if cell is None else cell for cell in row]


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
            return f"{'#' * level} {_inline(text)}"
        case Paragraph(text):
            return _inline(text)
        case Bullets(items):
            return "\n".join(f"- {_inline(item)}" for item in items)
        case Table():
            cells = [[_inline(str(cell)) for cell in row] for row in block.texts()]
            return "\n".join(markdown_rows(Table(block.title, block.columns, cells)))


def _inline(text: str) -> str:
    """One line, in which nothing is taken for HTML or for a list, a heading or a quote."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([*`\[\]])", r"\\\1", text)
    return re.sub(r"^(\d*)([#>+.)-])(?=\s)", r"\1\\\2", text)


# --- HTML ---------------------------------------------------------------------------------


def as_html(records: Sequence[Record], reading: Reading, file: Path) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{TITLE}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(_html(block) for block in _blocks(records, reading))
        + "\n</body></html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        case Table():
            return html_table(block)


FORMATS: dict[str, Callable[[Sequence[Record], Reading, Path], str]] = {
    "md": as_markdown, "csv": as_csv, "json": as_json, "html": as_html,
}  # fmt: skip
