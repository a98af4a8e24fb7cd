"""Playbooks: which there are, what they do, and running one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from console import actions
from console.panels.listpane import ListPane
from console.renderables import format as fmt
from console.renderables.lines import ALARM, Line, Span, Verbatim, columns_line, fit
from console.renderables.pages import verdict_span, words
from console.screens.dialogs import ask_first
from console.screens.lists import ListScreen
from console.screens.run import RunScreen
from console.screens.run_question import RunQuestion
from engine.errors import ConfigError
from engine.paths import user_folder
from playbooks.runs import spec
from playbooks.runs.spec import Playbook


@dataclass(frozen=True)
class Choice:
    """A playbook, or why its file cannot be read."""

    name: str
    playbook: Playbook | None
    error: str = ""


def choices() -> list[Choice]:
    """Those that ship, and the operator's own in the folder playbooks of their data."""
    own = sorted((user_folder() / "playbooks").glob("*.toml"))
    files: list[str | Path] = [*spec.names(), *own]
    found = []
    for where in files:
        try:
            playbook = spec.load(where)
        except ConfigError as error:
            found.append(Choice(Path(where).stem, None, str(error)))
        else:
            found.append(Choice(playbook.name, playbook))
    return found


class PlaybooksScreen(ListScreen[Choice]):
    PLACE = actions.PLAYBOOKS
    TITLE_TEXT = "Playbooks"
    HAS_DETAIL = True

    def __init__(self) -> None:
        super().__init__()
        self._choices = choices()

    def make_pane(self) -> ListPane[Choice]:
        return ListPane(
            lambda c: c.name, self._row, opens="screen.run_playbook", on_choice=self.show_detail
        )

    def items(self) -> Sequence[Choice]:
        return self._choices

    def words_of(self, item: Choice) -> str:
        return f"{item.name} {item.playbook.title if item.playbook else item.error}"

    def _row(self, choice: Choice, width: int) -> Line:
        name = Verbatim(f"{choice.name:<16}", "value")
        if choice.playbook is None:
            return fit((name, Span(f"{ALARM} {choice.error}", "trouble")), width)
        steps = len(choice.playbook.steps)
        budget = fmt.duration(choice.playbook.time_budget_s)
        facts = columns_line([(f"{steps} steps", 8), (budget, 9)])
        run = self.console_app.runs.of(choice.name)
        state = (verdict_span(run.verdict), Span("  ")) if run is not None else ()
        return fit((name, *facts, Span("  "), *state, Span(choice.playbook.title)), width)

    def detail_lines(self, item: Choice, width: int) -> tuple[Line, Sequence[Line]]:
        if item.playbook is None:
            return (Verbatim(item.name, "title"),), words(item.error, width, role="trouble")
        playbook = item.playbook
        lines = [*words(" ".join(playbook.about.split()), width)]
        for at, step in enumerate(playbook.steps, 1):
            count = len(step.gates)
            gates = f"  {count} gate{'s' * (count > 1)}" if count else ""
            head = (Verbatim(f"{at}. {step.kind:<12}", "label"), Span(step.title))
            lines.append(fit((*head, Span(gates, "faint")), width))
        return (Span(playbook.title, "title"),), lines

    def action_run_playbook(self) -> None:
        choice, app = self.pane.choice, self.console_app
        if choice is None or choice.playbook is None:
            return
        run = app.runs.of(choice.name)
        if run is not None and run.running:
            app.push_screen(RunScreen(run))
        elif app.runs.current is not None:
            text = f"{app.runs.current.playbook.name} runs; one at a time"
            self.notify(text, severity="warning", timeout=3)
        else:
            self._ask(choice.playbook)

    def _ask(self, playbook: Playbook) -> None:
        app = self.console_app
        question = RunQuestion(playbook, app.bridge.engine.reach, app.runs.terms)

        def run() -> None:
            app.push_screen(RunScreen(app.runs.start(playbook, question.terms)))

        ask_first(app, question, run)

    def action_cancel_run(self) -> None:
        self.console_app.runs.cancel()
