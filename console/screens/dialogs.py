"""Small windows that ask: yes or no, or a few lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from console.locale.lang import _, said
from console.panels.lineview import LineView
from console.renderables.lines import ALARM, BLANK, Line, Span, text_line
from console.renderables.wrapping import wrap

WIDTH = 70
"""Of a dialog, its frame included."""
MANY = 9
"""Lines of a form, of which more stand close together: all are seen on 24 rows."""


def paragraph(text: str, sign: str = "") -> list[Line]:
    """Wrapped to a dialog's width."""
    rows = wrap(_(text), WIDTH - 6 - len(sign) * 2)
    head = f"{sign} " if sign else ""
    return [
        (Span(head if at == 0 else " " * len(head), "trouble"), Span(row))
        for at, row in enumerate(rows)
    ]


class ConfirmScreen(ModalScreen[bool]):
    """Whoever only hits enter has said no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes", show=False),
        Binding("n,escape,enter,q", "answer(False)", "no", show=False),
    ]

    def __init__(self, question: str, consequence: str, yes: str = "yes, do it") -> None:
        super().__init__()
        self._question, self._consequence, self._yes = question, consequence, yes
        self.more: Sequence[tuple[str, str, str]] = ()
        """Answers that are neither yes nor no: key, words, action."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as frame:
            frame.border_title = _(self._question)
            frame.can_focus = False
            yield LineView(id="question")

    def on_mount(self) -> None:
        self.fill()

    def fill(self) -> None:
        """Write what is asked, or what has changed of it."""
        answers = [("y", self._yes, "screen.answer(True)"), *self.more,
                   ("n", "no (enter, esc)", "screen.answer(False)")]  # fmt: skip
        spans: list[Span] = []
        for key, words, action in answers:
            spans += (Span(key, "key", action), Span(f" {_(words)}    ", "text", action))
        self.query_one("#question", LineView).fill([*self.consequence(), BLANK, tuple(spans)])

    def consequence(self) -> list[Line]:
        return paragraph(self._consequence, ALARM)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


def ask_first(app: App[Any], question: ConfirmScreen, do: Callable[[], object]) -> None:
    """`do` on a yes."""

    def answered(yes: bool | None) -> None:
        if yes:
            do()

    app.push_screen(question, answered)


@dataclass(frozen=True)
class FormField:
    """A line of a form."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    check: Callable[[str], str] = lambda text: ""
    """What is wrong with a text, "" if nothing."""


def required(text: str) -> str:
    return "" if text.strip() else "something must stand here"


def one_of(*words: str) -> Callable[[str], str]:
    return lambda text: "" if text.strip() in words else f"one of {', '.join(words)}"


def number(low: float, high: float, whole: bool = False) -> Callable[[str], str]:
    kind = "a whole number" if whole else "a number"

    def check(text: str) -> str:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            value = float("nan")
        return "" if low <= value <= high else f"{kind} from {low:g} to {high:g}"

    return check


class FormScreen(ModalScreen[dict[str, str] | None]):
    """The texts by name, or None when it was left. Enter goes on, in the last line it is done."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave", show=False),
        Binding("ctrl+s", "finish", "done", show=False, priority=True),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(
        self, title: str, entries: Sequence[FormField], above: Sequence[Line] = ()
    ) -> None:
        super().__init__()
        self._title_text, self._entries, self._above = title, entries, list(above)
        self._inputs = [
            Input(e.value, placeholder=_(e.hint), compact=True, id=f"entry-{e.name}")
            for e in entries
        ]
        self._above_view, self._note = LineView(id="above"), LineView(id="note")

    def compose(self) -> ComposeResult:
        many = len(self._entries) > MANY
        with VerticalScroll(classes="dialog -dense" if many else "dialog") as frame:
            frame.border_title = _(self._title_text)
            frame.border_subtitle = _("ctrl+s done · esc leave")
            frame.can_focus = False
            yield self._above_view
            for entry, line in zip(self._entries, self._inputs, strict=True):
                with Horizontal(classes="entry"):
                    yield Label(_(entry.label), markup=False)
                    yield line
            yield self._note

    def on_mount(self) -> None:
        self._above_view.display = bool(self._above)
        self._above_view.fill(self._above)
        for line in self._inputs:
            line.cursor_blink = False
        self.set_focus(self._inputs[0])

    @on(Input.Submitted)
    def _next(self, event: Input.Submitted) -> None:
        at = self._inputs.index(event.input)
        if at + 1 < len(self._inputs):
            self.set_focus(self._inputs[at + 1])
        else:
            self.action_finish()

    def action_finish(self) -> None:
        for entry, line in zip(self._entries, self._inputs, strict=True):
            if wrong := entry.check(line.value):
                text = said("{label}: {wrong}", label=entry.label, wrong=wrong)
                self._note.set_lines([text_line(f"{ALARM} {text}", "trouble")])
                self.set_focus(line)
                return
        self.dismiss(
            {e.name: i.value.strip() for e, i in zip(self._entries, self._inputs, strict=True)}
        )

    def action_leave(self) -> None:
        self.dismiss(None)


def ask(app: App[Any], form: FormScreen, done: Callable[[dict[str, str]], object]) -> None:
    """`done` with the texts, unless the form is left."""

    def left(texts: dict[str, str] | None) -> None:
        if texts is not None:
            done(texts)

    app.push_screen(form, left)
