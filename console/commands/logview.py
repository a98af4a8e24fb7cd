"""The optimization log on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from console.commands.documents import WIDEST, rich_table
from playbooks.optlog import Record
from playbooks.optlog.page import Bullets, Heading, Paragraph, page, text_of
from playbooks.reports.document import Table

DECISIONS = {"adopt": "green", "reject": "red", "rolled_back": "red", "hold": ""}
VERDICTS = {"pass": "green", "warn": "yellow", "fail": "red"}
SHORT_ID = 8


def _console() -> Console:
    return Console(highlight=False)


def list_table(report: dict[str, Any]) -> None:
    console = _console()
    if not report["records"]:
        some = "no record matches" if report["total"] else f"no records yet in {report['file']}"
        console.print(some, markup=False)
        return
    table = RichTable(box=None, pad_edge=False)
    for name in ("id", "time (UTC)", "decision", "problems", "title"):
        table.add_column(name, justify="right" if name == "problems" else "left",
                         no_wrap=name != "title", overflow="fold")  # fmt: skip
    for row in report["records"]:
        table.add_row(
            row["id"][:SHORT_ID], row["time"][:16].replace("T", " "),
            Text(row["decision"], DECISIONS.get(row["decision"], "")),
            str(len(row["problems"])) if row["problems"] else "", Text(row["title"]),
        )  # fmt: skip
    console.print(table)


def show_pages(records: Sequence[Record]) -> None:
    console = _console()
    width = min(console.width, WIDEST)
    for record in records:
        for block in page(record):
            match block:
                case Heading(text, level):
                    console.print()
                    console.print(Text(text, "bold" if level < 3 else "bold dim"))
                case Paragraph(text):
                    console.print(Text(text), width=width)
                case Bullets(items):
                    for item in items:
                        console.print(Text(f"• {item}"), width=width)
                case Table():
                    console.print(rich_table(block))


def show_verdict(report: dict[str, Any]) -> None:
    console, verdict = _console(), report["verdict"]
    console.print(Text(verdict, VERDICTS[verdict]), Text(f"{report['records']} records in "),
                  Text(report["file"]))  # fmt: skip
    for damage in report["damage"]:
        console.print(Text(f"  {damage['text']}"))
    if report["set_aside"]:
        console.print(Text(f"  {report['set_aside']} torn lines are kept aside in "
                           f"{report['file']}.torn"))  # fmt: skip
    if report["head"]:
        console.print(Text(f"  head {report['head']}"))


def show_diff(report: dict[str, Any]) -> None:
    console = _console()
    for name in ("a", "b"):
        side = report[name]
        line = (
            f"{name}  {side['id'][:SHORT_ID]}  {side['time']}  {side['decision']}  {side['title']}"
        )
        console.print(Text(line))
    for name, title in (("what", "what changed"), ("how", "how"), ("environment", "environment")):
        _print_rows(console, title, report[name])
    if report["effect"]:
        table = RichTable("effect, after", "a", "b", "b over a", "verdicts", box=None,
                          pad_edge=False)  # fmt: skip
        for row in report["effect"]:
            change = "–" if row["change"] is None else f"{row['change']:+.1%}"
            verdicts = f"{row['verdict_a'] or '–'} / {row['verdict_b'] or '–'}"
            table.add_row(Text(row["metric"]), Text(text_of(row["a"])), Text(text_of(row["b"])),
                          change, verdicts)  # fmt: skip
        console.print()
        console.print(table)
    for note in report["notes"]:
        console.print(Text(f"note: {note}", "yellow"))


def _print_rows(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    console.print()
    if not rows:
        console.print(Text(f"{title}: the same"))
        return
    table = RichTable(title, "a", "b", box=None, pad_edge=False)
    for row in rows:
        table.add_row(Text(row["key"]), Text(text_of(row["a"])), Text(text_of(row["b"])))
    console.print(table)
