"""The optimization log: its entries, one of them, a new one, and one for a change just made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.message import Message

from console import actions
from console.control.pending_changes import Figure, LiveChange, figures
from console.control.surface import ConsoleSurface
from console.locale.lang import _
from console.panels.listpane import ListPane
from console.renderables import format as fmt
from console.renderables.lines import (
    ALARM,
    BLANK,
    Line,
    Span,
    Verbatim,
    columns_line,
    fit,
    in_column,
    text_line,
)
from console.renderables.pages import VERDICT_ROLES, block_lines
from console.renderables.screen_state import ScreenState
from console.screens.dialogs import FormField, FormScreen, ask, one_of, required
from console.screens.files import ask_file
from console.screens.lists import ListScreen, PageScreen
from engine.errors import ConfigError
from playbooks.optlog import Change, LogEffect, OptLog, Reading, Record
from playbooks.optlog.byhand import by_hand, user
from playbooks.optlog.export import FORMATS, export
from playbooks.optlog.page import page
from playbooks.optlog.provenance import provenance_of
from playbooks.optlog.record import DECISIONS
from playbooks.optlog.select import words

DECISION = FormField("decision", "decision", "hold", ", ".join(DECISIONS), one_of(*DECISIONS))


class LogScreen(ListScreen[Record]):
    PLACE = actions.LOG
    TITLE_TEXT = "Optimization log"

    class Read(Message):
        """The file has been read, off the UI's thread."""

        def __init__(self, records: Sequence[Record], reading: Reading | None, error: str) -> None:
            super().__init__()
            self.records, self.reading, self.error = records, reading, error

    def __init__(self, log: OptLog) -> None:
        super().__init__()
        self._log = log
        self._records: Sequence[Record] = ()
        self._reading: Reading | None = None
        self.EMPTY = f"reading {log.path} …"

    def on_mount(self) -> None:
        super().on_mount()
        self.read()

    def read(self) -> None:
        self.run_worker(self._read, thread=True, exclusive=True)

    def _read(self) -> None:
        try:
            reading = self._log.read()
        except ConfigError as error:
            self.post_message(self.Read((), None, str(error)))
        else:
            self.post_message(self.Read(tuple(reversed(reading.records)), reading, ""))

    def on_log_screen_read(self, message: Read) -> None:
        self._records, self._reading = message.records, message.reading
        self.EMPTY = message.error or "nothing is written yet: n writes an entry"
        self.show_body(self._state)

    def make_pane(self) -> ListPane[Record]:
        return ListPane(lambda r: r.id, record_row, record_head, "screen.open_row")

    def items(self) -> Sequence[Record]:
        return self._records

    def words_of(self, item: Record) -> str:
        return words(item)

    def title_line(self) -> Line:
        title: Line = (Span(self.TITLE_TEXT, "title"),)
        if self._reading is not None and self._reading.damage:
            count = len(self._reading.damage)
            text = f"  {ALARM} {count} damaged: evewatch log verify"
            title = (*title, Span(text, "trouble"))
        return title

    def action_open_row(self) -> None:
        if self.pane.choice is not None:
            self.app.push_screen(RecordScreen(self.pane.choice, self._log))

    def action_add_record(self) -> None:
        entries = [
            FormField("title", "title", hint="in a few words", check=required),
            FormField("why", "why", hint="the hypothesis, or the reason"),
            FormField("what", "what changed", hint="key=before:after; …", check=_pairs),
            FormField("effect", "what it did", hint="metric=before:after; …", check=_pairs),
            FormField("problems", "what went wrong", hint="one; another"),
            DECISION,
            FormField("rollback", "how to undo it"),
        ]
        ask(self.app, FormScreen("New entry", entries), self._entered)

    def _entered(self, texts: dict[str, str]) -> None:
        lists = {name: _parts(texts[name]) for name in ("what", "effect", "problems")}
        rest = {name: texts[name] for name in ("title", "why", "decision", "rollback")}
        write(self.console_app, self._log, lambda: by_hand(how=(), **lists, **rest), self.read)

    def action_export_shown(self) -> None:
        shown = list(reversed(self.pane.items))
        export_records(self.console_app, shown, self._log)


class RecordScreen(PageScreen):
    PLACE = actions.RECORD

    def __init__(self, record: Record, log: OptLog) -> None:
        super().__init__()
        self.record, self._log = record, log
        self._lines: tuple[int, list[Line]] = (0, [])

    def page(self, state: ScreenState, width: int) -> tuple[Line, Sequence[Line]]:
        if self._lines[0] != width and width > 0:
            self._lines = (width, block_lines(page(self.record), min(width, 100)))
        return (Span(f"Entry {self.record.id[:8]}", "title"),), self._lines[1]

    def action_export_shown(self) -> None:
        export_records(self.console_app, [self.record], self._log)


def record_head(width: int) -> Line:
    return columns_line([("time (UTC)", -17), ("decision", -12), ("title", -12)])


def record_row(record: Record, width: int) -> Line:
    problems = len(record.problems)
    sign = (Span(f"{ALARM} {problems} went wrong  ", "trouble"),) if problems else ()
    return fit(
        (
            Span(f"{record.time[:16].replace('T', ' '):<17}", "label"),
            in_column(record.decision, -12, VERDICT_ROLES.get(record.decision, "text")),
            *sign,
            Span(record.title),
        ),
        width,
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def _pairs(text: str) -> str:
    wrong = next((p for p in _parts(text) if "=" not in p or ":" not in p.partition("=")[2]), None)
    return "" if wrong is None else f"{wrong!r} is not key=before:after"


# --- writing -------------------------------------------------------------------------------


def write(app: ConsoleSurface, log: OptLog, make: Any, then: Any = lambda: None) -> None:
    """Append what `make` returns, on a thread of its own: it waits for the disk, and for git."""

    def work() -> None:
        try:
            stored = log.append(make())
        except ConfigError as error:
            app.say(str(error), severity="error")
        else:
            app.say(f"written into the log as {stored.id[:8]}")
            app.call_soon(then)

    app.run_worker(work, thread=True)


def export_records(app: ConsoleSurface, records: Sequence[Record], log: OptLog) -> None:
    def made(path: Path, fmt: str) -> str:
        return export(records, log.read(), log.path, fmt)

    ask_file(app, f"Export {len(records)} entries", "optlog.md", tuple(FORMATS), made)


# --- a change that was made in the console ---------------------------------------------------


def offer(app: ConsoleSurface, change: LiveChange) -> None:
    """The form that makes an entry of a change: its figures are there, the why is asked."""
    now = app.clock()
    found = figures(change, app.history, now)
    entries = [
        FormField("title", "title", _(change.title), check=required),
        FormField("why", "why", hint="what made you change it, what you expect"),
        FormField("problems", "what went wrong", hint="one; another"),
        DECISION,
        FormField("rollback", "how to undo it", _(f"set {change.setting} back to {change.before}")),
    ]

    def entered(texts: dict[str, str]) -> None:
        record = record_of(change, found, texts, now)
        config = app.bridge.engine.config
        write(
            app,
            app.log_book,
            lambda: replace(record, operator=user(), environment=provenance_of(config)),
        )
        app.changes.written(change)

    ask(app, FormScreen("Into the log", entries, figure_lines(found)), entered)


def record_of(
    change: LiveChange, found: Sequence[Figure], texts: dict[str, str], now: float
) -> Record:
    """Its claim is `inferred`: the load was not held still between before and after."""
    return Record(
        texts["title"],
        what=(Change(change.setting, change.before, change.after),),
        why=texts["why"],
        how={
            "made": "by hand, in the console",
            "figures": "means of the console's history over the minute before and the time since",
            "after_s": round(now - change.last, 1),
        },
        effect=tuple(LogEffect(f.metric, f.before, f.after) for f in found),
        problems=tuple(_parts(texts["problems"])),
        decision=texts["decision"],
        rollback=texts["rollback"],
        claim="inferred",
    )


def figure_lines(found: Sequence[Figure]) -> list[Line]:
    if not any(f.after is not None for f in found):
        text = "its effect is not to be seen yet: come back in ten seconds, or write it now"
        return [text_line(text, "faint"), *_figures(found), BLANK]
    return [*_figures(found), BLANK]


def _figures(found: Sequence[Figure]) -> list[Line]:
    head = columns_line([("", -16), ("before", 12), ("after", 12)])
    return [head] + [
        (
            Verbatim(f"{f.metric:<16}", "label"),
            Span(f"{fmt.decimal(f.before):>12}{fmt.decimal(f.after):>12}", "value"),
        )
        for f in found
    ]
