"""Checklists: which there are, and one of them. Automatic items answer themselves, from the
numbers of now; human ones ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from textual.message import Message

from checklists.book import ANSWERS, Answer, AnsweredItem
from checklists.checks import answer
from console import actions
from console.control.filled_checklist import FilledChecklist
from console.control.surface import ConsoleSurface
from console.locale.lang import said
from console.panels.listpane import ListPane
from console.renderables.lines import Line, Span, Verbatim, columns_line, fit, pad, text_line
from console.renderables.pages import verdict_span, words
from console.screens.dialogs import FormField, FormScreen, ask, one_of, paragraph, required
from console.screens.files import ask_file
from console.screens.lists import ListScreen
from console.screens.log import write
from engine.errors import EngineError
from playbooks.optlog.byhand import user
from playbooks.reports.language import Name

LABEL, GAP = 7, Span("  ")
FORMATS = ("md", "html", "csv", "json")  # not shown


class ChecklistsScreen(ListScreen[FilledChecklist]):
    PLACE = actions.CHECKLISTS
    TITLE_TEXT = "Checklists"
    HAS_DETAIL = True

    def make_pane(self) -> ListPane[FilledChecklist]:
        return ListPane(
            lambda f: f.checklist.name, self._row, opens="screen.open_row",
            on_choice=self.show_detail,
        )  # fmt: skip

    def items(self) -> Sequence[FilledChecklist]:
        return self.console_app.checklists

    def words_of(self, item: FilledChecklist) -> str:
        return f"{item.checklist.name} {item.checklist.title}"

    def _row(self, filled: FilledChecklist, width: int) -> Line:
        started = bool(filled.automatic or filled.answers)
        state = verdict_span(filled.outcome.verdict) if started else Span("· not started", "faint")
        name = f"{filled.checklist.name:<18}"
        return fit(
            (Verbatim(name, "value"), *_padded(state, 17), Span(filled.checklist.title)), width
        )

    def detail_lines(self, item: FilledChecklist, width: int) -> tuple[Line, Sequence[Line]]:
        auto = len(item.checklist.of_kind("auto"))
        people = len(item.checklist.items) - auto
        count = f"{auto} items answer themselves, {people} ask people"
        lines = [*words(item.checklist.about, width), text_line(count, "faint")]
        return (Span(item.checklist.title, "title"),), lines

    def action_open_row(self) -> None:
        if self.pane.choice is not None:
            self.app.push_screen(ChecklistScreen(self.pane.choice))


class ChecklistScreen(ListScreen[AnsweredItem]):
    PLACE = actions.CHECKLIST
    HAS_DETAIL = True

    class Examined(Message):
        """The environment has been looked at, off the UI's thread."""

        def __init__(self, environment: Mapping[str, Any] | None, error: str = "") -> None:
            super().__init__()
            self.environment, self.error = environment, error

    def __init__(self, filled: FilledChecklist) -> None:
        self.filled = filled
        self.TITLE_TEXT = filled.checklist.title
        super().__init__()

    def make_pane(self) -> ListPane[AnsweredItem]:
        return ListPane(
            lambda line: line.item.id, item_row, opens="screen.answer_item",
            on_choice=self.show_detail,
        )  # fmt: skip

    def items(self) -> Sequence[AnsweredItem]:
        return self.filled.outcome.lines

    def words_of(self, item: AnsweredItem) -> str:
        i = item.item
        return f"{i.id} {i.text} {i.kind} {i.severity} {i.owner} {item.result.verdict}"

    def title_line(self) -> Line:
        outcome = self.filled.outcome
        counts = "  ".join(f"{n} {verdict}" for verdict, n in outcome.counts().items() if n)
        verdict = verdict_span(outcome.verdict)
        return (Span(self.TITLE_TEXT, "title"), GAP, verdict, GAP, Span(counts, "faint"))

    def detail_lines(self, item: AnsweredItem, width: int) -> tuple[Line, Sequence[Line]]:
        i = item.item
        lines = [*words(i.text, width, role="value"), *words(_told(item), width)]
        for label, text in (
            ("why", i.why), ("do", i.remedy), ("undo", i.undo), ("look", Name(i.command)),
        ):  # fmt: skip
            lines += [
                (*pad(text_line(label if at == 0 else "", "label"), LABEL), *line)
                for at, line in enumerate(words(text, max(1, width - LABEL)))
                if text
            ]
        kind = "answers itself" if i.kind == "auto" else "asks people"
        facts = Span(f"{kind} · {i.severity} · {i.owner}", "faint")
        return (Verbatim(i.id, "title"), GAP, facts), lines

    # answering

    def on_mount(self) -> None:
        super().on_mount()
        self.action_update_answers()

    def action_update_answers(self) -> None:
        self.run_worker(self._examine, thread=True, exclusive=True)

    def _examine(self) -> None:
        """Versions and drivers take a second to look at: not in the UI's thread."""
        from playbooks.environment.step import examine

        try:
            report = examine()
        except EngineError as error:
            self.post_message(self.Examined(None, str(error)))
        else:
            self.post_message(self.Examined(report))

    def on_checklist_screen_examined(self, message: Examined) -> None:
        if message.error:
            self.notify(message.error, severity="warning")
        app = self.console_app
        snapshot, config = app.bridge.poll(), app.bridge.settings
        self.filled.automatic = {
            item.id: answer(item, snapshot, config, message.environment)
            for item in self.filled.checklist.of_kind("auto")
        }
        self.redraw()

    def action_answer_item(self) -> None:
        line = self.pane.choice
        if line is None:
            return
        seen = self.filled.automatic.get(line.item.id)
        if seen is not None and seen.verdict != "unknown":
            self.notify("this item answers itself; u looks again", timeout=3)
            return
        given = self.filled.answers.get(line.item.id)
        entries = [
            FormField("answer", "answer", given.answer if given else "yes", ", ".join(ANSWERS),
                  one_of(*ANSWERS, "")),
            FormField("note", "note", given.note if given else "", "what you saw, or why not"),
            FormField("by", "by", (given.by if given else user()) or ""),
        ]  # fmt: skip
        form = FormScreen("Is it so?", entries, words(line.item.text, 64, role="value"))
        ask(self.app, form, partial(self._answered, line.item.id))

    def _answered(self, name: str, texts: dict[str, str]) -> None:
        try:
            if texts["answer"]:
                given = Answer(texts["answer"], texts["by"] or None, texts["note"])
                self.filled.answers[name] = given
            else:
                self.filled.answers.pop(name, None)
        except EngineError as error:
            self.notify(str(error), severity="warning")
            return
        self.redraw()
        self.pane.move(1)

    def action_sign_off(self) -> None:
        outcome = self.filled.outcome
        left = len(outcome.open)
        text = f"The verdict is {outcome.verdict}; {left} items are open or not as they should be."
        entry = FormField("by", "by", user() or "", "your name", required)
        form = FormScreen("Sign the checklist off", [entry], paragraph(text))
        ask(self.app, form, self._signed)

    def _signed(self, texts: dict[str, str]) -> None:
        from playbooks.optlog.checklog import checklist_record
        from playbooks.runs.checklist import conclude

        app, filled = self.console_app, self.filled
        target = app.bridge.poll().source.target
        report = conclude(
            filled.checklist, filled.automatic, filled.counted, target, signed_off_by=texts["by"]
        )
        write(app, app.log_book, lambda: checklist_record(report))

    def action_export_shown(self) -> None:
        export_outcome(self.console_app, self.filled)


def _told(line: AnsweredItem) -> str:
    verdict, evidence = line.result.verdict, line.result.evidence
    if line.by is None:
        return said("{verdict}: {evidence}", verdict=verdict, evidence=evidence)
    return said(
        "{verdict} by {by}: {evidence}", verdict=verdict, by=Name(line.by), evidence=evidence
    )


def item_row(line: AnsweredItem, width: int) -> Line:
    state = _padded(verdict_span(line.result.verdict), 10)
    kinds = columns_line([(line.item.kind, -7), (line.item.severity, -8)])
    return fit((*state, *kinds, Span(line.item.text)), width)


def _padded(span: Span, width: int) -> Line:
    return pad((span,), width)


def export_outcome(app: ConsoleSurface, filled: FilledChecklist) -> None:
    def made(path: Path, fmt: str) -> str:
        from playbooks.reports.formats import WRITERS
        from playbooks.runs.checklist import conclude

        target = app.bridge.poll().source.target
        report = conclude(filled.checklist, filled.automatic, filled.counted, target)
        return str(WRITERS[f".{fmt}"](report))

    ask_file(app, "Export the checklist", f"{filled.checklist.name}.md", FORMATS, made)
